"""Where the samples of a rollout come from: the rollout function, or a dump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from relax.arguments import Arguments
from relax.backends.ray_border import answer
from relax.controller.chronicle import Chronicle
from relax.controller.generation import Follower
from relax.controller.hands import StageHeldError
from relax.controller.rollout import RolloutInHand
from relax.controller.workers import Workers
from relax.engine.rollout.runner import RolloutOutput
from relax.engine.rollout.sample import Sample
from relax.errors import EngineMismatch, RelaxError, WorkerError

Load: TypeAlias = Callable[[int], Sequence[Sample]]
"""Gives the samples of a rollout, by its number; blocks while it reads."""


class Feed:
    """Gives the samples of one rollout after the other.

    Args:
        arguments: Of the run.
        workers: The run's actors.
        chronicle: Where what is generated is shown as it comes.
        can_wait: Whether the run may wait for a dump that is missing.

    Attributes:
        load: Gives the samples of a rollout in the place of the rollout function; None
            generates.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        workers: Workers,
        chronicle: Chronicle,
        can_wait: bool,
        load: Load | None,
    ) -> None:
        self.load = load
        self._arguments = arguments
        self._runner = workers.runner
        self._log = chronicle.log
        self._can_wait = can_wait
        self._forged = arguments.debug.load_forge_rollout_data is not None
        self._follower = Follower(
            workers.runner,
            recorder=chronicle.recorder,
            events=chronicle.events,
            log=chronicle.log,
            reward_key=arguments.reward.reward_key,
        )

    async def samples(self, rollout: RolloutInHand) -> RolloutOutput:
        """The samples of a rollout; at least one.

        Raises:
            StageHeldError: A dump is missing or does not fit; the run waits for it.
            RelaxError: Likewise where nobody can reach the run; or generation failed.
        """
        if self.load is not None:
            return await self._loaded(self.load, rollout.rollout_id)
        try:
            output = await self._generated(rollout)
        except RelaxError as error:
            if self._forged:
                self._hold(error)
            raise
        if not output.samples:
            raise EngineMismatch(
                f"the rollout function gave no sample for rollout {rollout.rollout_id}",
                where=str(self._arguments.rollout.rollout_function_path),
            )
        return output

    async def _generated(self, rollout: RolloutInHand) -> RolloutOutput:
        reference = self._runner.generate.remote(rollout.rollout_id)
        work = asyncio.ensure_future(answer(reference, worker="rollout-runner"))
        try:
            await self._follower.follow(work, rollout)
        finally:
            work.cancel()
        output: RolloutOutput = work.result()
        return output

    async def _loaded(self, load: Load, rollout_id: int) -> RolloutOutput:
        try:
            samples = await asyncio.to_thread(load, rollout_id)
        except RelaxError as error:
            self._hold(error)
            raise
        self._log.info(f"Loaded {len(samples)} samples for rollout {rollout_id}")
        return RolloutOutput(samples=samples)

    def _hold(self, error: RelaxError) -> None:
        """Lets the run wait for a dump that cannot be used, if it can be reached.

        Raises:
            StageHeldError: It waits.
        """
        if self._can_wait and not isinstance(error, WorkerError):
            self._log.error(str(error))
            raise StageHeldError(error) from error
