"""The hands of a run: its stages, and what people order at its safe points."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from relax.backends.ray_border import answer
from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    ReplayOrder,
    RestartOrder,
    VerifyOrder,
)
from relax.control.protocol import Stacks
from relax.controller.dumper import Dumper
from relax.controller.engines import restart_engines
from relax.controller.excursions import Excursions
from relax.controller.hands import StageResult
from relax.controller.pushing import refuse_other_weights
from relax.controller.replays import Replays
from relax.controller.state import CarryOut, RunStage
from relax.controller.trainers import call_trainers
from relax.controller.triggers import DumpTriggers
from relax.errors import ArgumentError, DumpError, WorkerError
from relax.events.types import Stage


class RunHands:
    """Carries out stages and errands (`relax.controller.hands.Hands`).

    Args:
        excursions: Has the stages of the run, and those of an excursion.
        replays: Replays recorded samples.
        dumper: Keeps the last rollouts.
        triggers: What makes a rollout dump itself.
    """

    def __init__(
        self,
        excursions: Excursions,
        *,
        replays: Replays,
        dumper: Dumper,
        triggers: DumpTriggers,
    ) -> None:
        self._excursions = excursions
        self._workers = excursions.workers
        self._replays = replays
        self._dumper = dumper
        self._triggers = triggers

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        """Runs one stage of the run, or of the excursion that it is on."""
        waits = judge or self._triggers.on_verdicts
        result = await self._excursions.stages.run(order, judge=waits)
        if self._triggers and not order.aside:
            await self._dump_if_due(order, result)
        return result

    def evaluates(self, order: RunStage) -> bool:
        """Whether an evaluation falls into a stage; then it takes longer."""
        return self._excursions.stages.evaluates(order)

    async def carry_out(self, order: CarryOut) -> str:
        """Dumps, replays, or changes the mode.

        Raises:
            RelaxError: It could not be done; nothing has changed.
        """
        match order.errand.order:
            case DumpOrder() as wanted:
                return await self._dump(wanted)
            case ModeOrder() as wanted:
                return await self._excursions.move(order, wanted)
            case ReplayOrder() as wanted:
                return await self._replays.replay(order, wanted)
            case RestartOrder():
                return await self._restart(before=order.rollout_id)
            case VerifyOrder():
                return await self._excursions.stages.verify_weights(order.rollout_id)

    async def settle(self) -> None:
        """Waits for verdicts that are still being given."""
        await self._excursions.stages.settle()

    async def abort_generation(self) -> None:
        """Aborts what is being generated; partial samples are kept."""
        if self._workers.runner is not None:
            await answer(self._workers.runner.abort.remote(), worker="rollout-runner")

    async def stacks(self) -> Stacks:
        """Python stacks of all processes."""
        return await self._workers.stacks()

    def processes(self) -> Mapping[str, int]:
        """``{name: pid}`` of the run's processes."""
        return self._workers.processes()

    def memory_bytes(self) -> Mapping[str, int]:
        """Resident memory by process."""
        return self._workers.memory_bytes()

    def cpu_seconds(self) -> Mapping[str, float]:
        """Processor time used, by process."""
        return self._workers.cpu_seconds()

    async def _dump_if_due(self, order: RunStage, result: StageResult) -> None:
        """Dumps a rollout that ``--dump-on`` waits for, once its ranks have trained."""
        self._triggers.see(order.rollout_id, result)
        last = order.stage is self._excursions.stages.last_stage
        if not (last or order.stage is Stage.TRAIN):
            return
        if (why := self._triggers.why()) and order.rollout_id in self._dumper.kept():
            await self._dumper.dump_by_itself(order.rollout_id, why)

    async def _restart(self, *, before: int) -> str:
        names = ", ".join(await restart_engines(self._workers))
        if not self._workers.trainers:
            return f"{names} started again, with the weights of the checkpoint"
        stages = self._excursions.stages
        metrics = await stages.push_weights(before - 1)
        refuse_other_weights(metrics, drill=stages.drill)
        return f"{names} started again, with weights {stages.weights[0]}"

    async def _dump(self, order: DumpOrder) -> str:
        kept = self._dumper.get(order.rollout_id)
        folder = Path(order.folder).expanduser() if order.folder else None
        weights = None
        if order.with_weights:
            place = self._dumper.target(folder) / "weights" / str(kept.rollout_id)
            weights = await self._save_weights(kept.weights.version, place)
        try:
            dumped = await self._dumper.dump(kept.rollout_id, folder, weights=weights)
        except DumpError:
            if weights is not None:
                await asyncio.to_thread(shutil.rmtree, weights, ignore_errors=True)
            raise
        parts = "its samples and ranks" if kept.ranks else "its samples alone"
        with_weights = "" if weights is None else ", with its weights"
        return (
            f"rollout {kept.rollout_id}, {parts}{with_weights}: {len(dumped.files)} "
            f"files, {dumped.num_bytes} bytes, {dumped.manifest}"
        )

    async def _save_weights(self, version: int, place: Path) -> Path:
        """Saves the weights of a version: whole while they are those of now.

        Raises:
            DumpError: They are not there any more, or the disk refused.
        """
        if not self._workers.trainers:
            raise DumpError("there is no trainer whose weights could be dumped")
        if apart := self._workers.trainers_apart():
            raise DumpError(
                f"{', '.join(apart)} cannot write weights: their node does not see the "
                "run folder",
                hint="dump without weights; --save on a shared disk keeps them",
            )
        (now, *kept), *_ = await call_trainers(self._workers, "weights_versions")
        try:
            if version == now:
                await call_trainers(self._workers, "save", place, None)
            elif version in kept:
                await call_trainers(self._workers, "save_hf", place, version)
            else:
                raise DumpError(
                    f"the weights of version {version} are not kept any more (there are"
                    f" {', '.join(map(str, (now, *kept)))})",
                    hint="raise --keep-weights, or dump without weights",
                )
        except (ArgumentError, WorkerError) as error:
            raise DumpError(
                f"the weights were not saved: {error.what}", where=str(place)
            ) from error
        return place
