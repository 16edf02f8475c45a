"""Excursions: another mode for a while, and back to where the run was.

mark ──▶ stages of the other mode, recorded as x1.0, x1.1 … ──▶ back to the mark
                                                            └─▶ or kept
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relax.arguments import Arguments
from relax.arguments.arguments import replaced
from relax.arguments.dump_template import DumpTemplate
from relax.control.orders import ModeOrder
from relax.controller.chronicle import Chronicle
from relax.controller.dumper import Dumper
from relax.controller.feed import Load
from relax.controller.marks import RunMark, forget, return_to, take_mark
from relax.controller.modes import StagePlan, sides_of, stages_of
from relax.controller.stages import Stages
from relax.controller.state import CarryOut
from relax.controller.workers import Workers
from relax.engine.rollout.replayed import check_fit, read_dump
from relax.engine.rollout.sample import Sample
from relax.errors import InternalError
from relax.events.types import ExcursionEnded, ExcursionStarted, Mode

WAYS_OFF = {"save": None, "save_interval": None, "save_hf": None, "eval_interval": None}
"""What an excursion must not do: checkpoints and evaluations are the run's."""


@dataclass(frozen=True, kw_only=True)
class _Away:
    mark: RunMark
    mode: Mode
    first_rollout: int


class Excursions:
    """Has the stages of a run, and those of the excursion that it is on.

    Args:
        arguments: Of the run.
        workers: The run's actors.
        chronicle: The run's writers.
        plan: The run's mode and stages.
        load: Of a train-only run: gives its samples.

    Attributes:
        home: The run's own stages.
        stages: Those of now.
        workers: The run's actors.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        workers: Workers,
        chronicle: Chronicle,
        plan: StagePlan,
        load: Load | None,
    ) -> None:
        self._arguments = arguments
        self._chronicle = chronicle
        self._plan = plan
        self._load = load
        self._away: _Away | None = None
        self.workers = workers
        self.home = self.stages = Stages(
            arguments, workers=workers, chronicle=chronicle, plan=plan, load=load
        )

    async def move(self, order: CarryOut, wanted: ModeOrder) -> str:
        """Enters an excursion, or ends it.

        Raises:
            RelaxError: The dump to train on cannot be used.
        """
        if self._away is None:
            return await self._enter(order, wanted)
        return await self._leave(self._away, wanted, by=order.errand.by)

    @property
    def lacks_data(self) -> bool:
        """Whether the run trains only, and nobody has said on what."""
        return self._plan.mode is Mode.TRAIN_ONLY and self._load is None

    async def train_on(self, source: str, *, rollout_id: int) -> None:
        """Says on what a train-only run trains.

        Args:
            source: A dump, or a template with ``{rollout_id}``.
            rollout_id: The rollout that comes next, whose dump is looked at now.

        Raises:
            RelaxError: The dump is missing, cannot be read or does not fit.
        """
        load = self.loader(source)
        await asyncio.to_thread(load, rollout_id)
        self._load = load
        self.home.feed_by(load)

    def stages_of(
        self,
        mode: Mode,
        *,
        name: str,
        first_rollout: int,
        source: str,
        load: Load | None,
    ) -> Stages:
        """Stages that are recorded apart from the run.

        Args:
            mode: Theirs.
            name: Of the excursion or replay.
            first_rollout: The rollout that they begin with.
            source: ``excursion`` or ``replay``, for the records.
            load: Gives their samples; None generates them.
        """
        opened = self.workers.trainer_opened
        return Stages(
            replaced(self._arguments, **WAYS_OFF),
            workers=self.workers,
            chronicle=self._chronicle.aside(
                name, first_rollout=first_rollout, source=source
            ),
            plan=StagePlan(
                mode=mode,
                stages=stages_of(
                    mode, has_reference=opened is not None and opened.has_reference
                ),
                can_wait=self._plan.can_wait,
            ),
            load=load,
            weights=self.home.weights,
        )

    def loader(self, source: str) -> Load:
        """Gives the samples of dumps, or of the newest kept rollout.

        Args:
            source: A dump, or a template with ``{rollout_id}``; '' for the kept one.

        Raises:
            DumpError: No rollout is kept.
        """
        if source:
            return partial(_load, self._arguments, source)
        dumper = self._chronicle.dumper
        if not isinstance(dumper, Dumper):
            raise InternalError("the run keeps no rollouts")
        samples = dumper.get(None).samples
        return lambda _: samples

    async def _enter(self, order: CarryOut, wanted: ModeOrder) -> str:
        began, errand = time.monotonic(), order.errand
        load = None
        if wanted.mode is not Mode.ROLLOUT_ONLY:
            load = self.loader(wanted.source)
        mark = await take_mark(self.workers, errand.name)
        self._away = _Away(mark=mark, mode=wanted.mode, first_rollout=order.rollout_id)
        self.stages = self.stages_of(
            wanted.mode,
            name=errand.name,
            first_rollout=order.rollout_id,
            source="excursion",
            load=load,
        )
        self._chronicle.events.append(
            ExcursionStarted(
                name=errand.name,
                mode=wanted.mode,
                rollout_id=order.rollout_id,
                by=errand.by,
                mark_bytes=mark.num_bytes,
                seconds=time.monotonic() - began,
                memory_bytes=self.workers.memory_bytes(),
            ),
            sync=True,
        )
        return f"excursion {errand.name} in {wanted.mode} mode"

    async def _leave(self, away: _Away, wanted: ModeOrder, *, by: str) -> str:
        began = time.monotonic()
        await self.stages.settle()
        changed: tuple[str, ...] = ()
        if wanted.keep:
            # Nobody else brings the engines what the excursion made.
            await self.home.push_weights(away.first_rollout - 1)
            await forget(self.workers, away.mark)
        else:
            changed = await return_to(self.workers, away.mark)
            sides = sides_of(away.mode)
            if sides.training and sides.rollout:
                await self.stages.push_weights(away.first_rollout)
        self._away, self.stages = None, self.home
        self._chronicle.events.append(
            ExcursionEnded(
                name=away.mark.name,
                mode=away.mode,
                kept=wanted.keep,
                by=by,
                seconds=time.monotonic() - began,
                changed=changed,
                tensors=away.mark.tensors,
                memory_bytes=self.workers.memory_bytes(),
            ),
            sync=True,
        )
        if wanted.keep:
            return f"excursion {away.mark.name} is kept"
        if changed:
            raise InternalError(
                f"{len(changed)} tensors are not as they were before excursion "
                f"{away.mark.name}: {changed[0]}"
            )
        return f"back from {away.mark.name}: {away.mark.tensors} tensors as before"


def _load(arguments: Arguments, source: str, rollout_id: int) -> list[Sample]:
    """The samples of a dump that was named by a person.

    Raises:
        DumpError: It is missing or cannot be read.
        ArgumentError: It does not fit the run.
    """
    path = DumpTemplate(source).path(rollout_id=rollout_id)
    samples = read_dump(Path(path), reward_key=arguments.reward.reward_key)
    check_fit(samples, arguments, path=path, flag="the dump")
    return samples
