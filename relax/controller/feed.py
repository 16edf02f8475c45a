"""Where the samples of a rollout come from: the rollout function, or a dump."""

from __future__ import annotations

import asyncio

from relax.arguments import Arguments
from relax.backends.ray_border import answer
from relax.controller.chronicle import Chronicle
from relax.controller.generation import Follower
from relax.controller.hands import StageHeldError
from relax.controller.modes import StagePlan
from relax.controller.rollout import RolloutInHand
from relax.controller.workers import Workers
from relax.engine.rollout.replayed import load_for_training
from relax.engine.rollout.runner import RolloutOutput
from relax.errors import EngineMismatch, RelaxError
from relax.events.types import Mode


class Feed:
    """Gives the samples of one rollout after the other.

    Args:
        arguments: Of the run.
        workers: The run's actors.
        chronicle: Where what is generated is shown as it comes.
        plan: Mode of the run.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        workers: Workers,
        chronicle: Chronicle,
        plan: StagePlan,
    ) -> None:
        self._arguments = arguments
        self._runner = workers.runner
        self._log = chronicle.log
        self._plan = plan
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
        if self._plan.mode is Mode.TRAIN_ONLY:
            return await self._loaded(rollout.rollout_id)
        output = await self._generated(rollout)
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

    async def _loaded(self, rollout_id: int) -> RolloutOutput:
        try:
            samples = await asyncio.to_thread(
                load_for_training, self._arguments, rollout_id
            )
        except RelaxError as error:
            if not self._plan.can_wait:
                raise
            self._log.error(str(error))
            raise StageHeldError(error) from error
        self._log.info(f"Loaded {len(samples)} samples for rollout {rollout_id}")
        return RolloutOutput(samples=samples)
