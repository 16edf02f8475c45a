"""Replays: recorded samples once more, apart from the run.

probe   all passes of a train stage on named weights, no optimizer step (`probes`)
reward  the responses scored again (`rescoring`)
train   one rollout trained on, and back to the mark
forge   the same with engines and weight updates

The run is as it was afterwards; what was found is an event and a step record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from relax.arguments import Arguments
from relax.control.orders import ReplayKind, ReplayOrder
from relax.controller.chronicle import Chronicle
from relax.controller.comparison import Comparison, compare_numbers
from relax.controller.dumper import Dumper
from relax.controller.excursions import Excursions
from relax.controller.marks import return_to, take_mark
from relax.controller.modes import sides_of, stages_of
from relax.controller.probes import Finding, probe, same_weights
from relax.controller.replay_source import (
    ReplaySource,
    source_of_dump,
    source_of_kept,
)
from relax.controller.rescoring import rescored
from relax.controller.state import CarryOut, RunStage
from relax.events.types import Mode, ReplayFinished, Stage
from relax.measure.reduction import Metrics

_MODES = {ReplayKind.TRAIN: Mode.TRAIN_ONLY, ReplayKind.FORGE: Mode.FORGE}


class Replays:
    """Replays recorded samples at a safe point.

    Args:
        arguments: Of the run.
        excursions: The run's stages.
        chronicle: The run's writers.
        dumper: Keeps the last rollouts.
        run_id: Of the run.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        excursions: Excursions,
        chronicle: Chronicle,
        dumper: Dumper,
        run_id: str,
    ) -> None:
        self._arguments = arguments
        self._excursions = excursions
        self._workers = excursions.workers
        self._chronicle = chronicle
        self._dumper = dumper
        self._run_id = run_id
        self._layout = chronicle.recorder.layout

    async def replay(self, order: CarryOut, wanted: ReplayOrder) -> str:
        """Replays, and says in an event what came of it.

        Returns:
            The same in a few words.

        Raises:
            RelaxError: The source, the samples or the weights are not there.
        """
        if wanted.kind is ReplayKind.TRAIN and self._excursions.lacks_data:
            await self._excursions.train_on(wanted.source, rollout_id=order.rollout_id)
            return f"training on {wanted.source}"
        began = time.monotonic()
        source = await self._source(wanted)
        finding = await self._found(order, wanted, source)
        finished = ReplayFinished(
            name=f"{order.errand.name}.0",
            kind=wanted.kind,
            source=source.name,
            rollout_id=source.rollout_id,
            by=order.errand.by,
            samples=finding.samples,
            weights_version=finding.weights_version,
            weights=finding.weights,
            seconds=time.monotonic() - began,
            comparisons=tuple(map(dataclasses.asdict, finding.comparisons)),
            notes=(*finding.notes, *_lost(source)),
            metrics=finding.metrics,
            changed=finding.changed,
            tensors=finding.tensors,
            record=finding.record,
        )
        self._chronicle.events.append(finished, sync=True)
        return _in_words(finished)

    async def _source(self, wanted: ReplayOrder) -> ReplaySource:
        if wanted.source:
            return await asyncio.to_thread(
                source_of_dump,
                Path(wanted.source).expanduser(),
                reward_key=self._arguments.reward.reward_key,
            )
        kept = self._dumper.get(wanted.rollout_id)
        return source_of_kept(kept, run_id=self._run_id, layout=self._layout)

    async def _found(
        self, order: CarryOut, wanted: ReplayOrder, source: ReplaySource
    ) -> Finding:
        match wanted.kind:
            case ReplayKind.PROBE:
                return await probe(
                    self._arguments,
                    source,
                    wanted,
                    workers=self._workers,
                    recorder=self._chronicle.aside(
                        order.errand.name,
                        first_rollout=source.rollout_id,
                        source="replay",
                    ).recorder,
                    run_id=self._run_id,
                )
            case ReplayKind.REWARD:
                return await rescored(
                    self._arguments, source, wanted, workers=self._workers
                )
            case ReplayKind.TRAIN | ReplayKind.FORGE:
                return await self._trained(order, wanted, source)

    async def _trained(
        self, order: CarryOut, wanted: ReplayOrder, source: ReplaySource
    ) -> Finding:
        """One rollout of another mode, and back."""
        mode, name = _MODES[wanted.kind], order.errand.name
        mark = await take_mark(self._workers, name)
        version, is_record = await same_weights(
            self._workers, source, run_id=self._run_id
        )
        stages = self._excursions.stages_of(
            mode,
            name=name,
            first_rollout=source.rollout_id,
            source="replay",
            load=lambda _: source.samples,
        )
        opened = self._workers.trainer_opened
        has_reference = opened is not None and opened.has_reference
        steps: list[Metrics] = []
        try:
            for stage in stages_of(mode, has_reference=has_reference):
                run = RunStage(
                    rollout_id=source.rollout_id, stage=stage, aside=f"{name}.0"
                )
                result = await stages.run(run, judge=False)
                if stage is Stage.TRAIN:
                    steps.append(result.metrics)
            await stages.settle()
        finally:
            changed = await return_to(self._workers, mark)
            if sides_of(mode).rollout:
                await stages.push_weights(source.rollout_id)
        return Finding(
            samples=len(source.samples),
            weights_version=version,
            weights="record" if is_record else "now",
            comparisons=_of_steps(source, steps) if is_record else [],
            metrics=steps[0],
            changed=changed,
            tensors=mark.tensors,
            record=f"steps/a{self._chronicle.recorder.attempt:02d}/{name}.0",
        )


def _of_steps(source: ReplaySource, steps: Sequence[Metrics]) -> list[Comparison]:
    if not source.steps or not steps:
        return []
    names = sorted(source.steps[0].keys() & steps[0].keys())
    return compare_numbers(source.steps[0], steps[0], names=names, exact=True)


def _lost(source: ReplaySource) -> tuple[str, ...]:
    if source.columns:
        return ()
    return (f"{source.name} has no log-probs to compare with",)


def _in_words(finished: ReplayFinished) -> str:
    what = f"{finished.kind} {finished.name} of {finished.source}"
    if finished.changed:
        return f"{what}: {len(finished.changed)} tensors are not as before (a defect)"
    if not finished.comparisons:
        return f"{what}: {finished.samples} samples, nothing to compare with"
    wrong = [c["name"] for c in finished.comparisons if not c["equal"]]
    if wrong:
        return f"{what}: {', '.join(wrong)} differ from what was recorded"
    return f"{what}: {len(finished.comparisons)} columns and numbers as recorded"
