"""A probe of recorded samples: on which weights, what is compared, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relax.arguments import Arguments
from relax.backends.probing import ProbeReport, ProbeRequest
from relax.backends.training import PackedColumn, RolloutInput, micro_batches
from relax.control.orders import ReplayOrder, ReplayWeights
from relax.controller.comparison import (
    OF_THE_WEIGHTS,
    TOKEN_COLUMNS,
    Column,
    Comparison,
    by_sample,
    compare_columns,
    compare_numbers,
)
from relax.controller.recorder import Recorder
from relax.controller.replay_rows import replayed_rows
from relax.controller.replay_source import ReplaySource
from relax.controller.rollout import RolloutInHand
from relax.controller.trainers import call_trainers, each_trainer, inputs_of
from relax.controller.workers import Workers
from relax.errors import DumpError
from relax.measure.reduction import Metrics, merge_metrics
from relax.records.schema import StageFile


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a replay found; fields as in `relax.events.types.ReplayFinished`."""

    samples: int
    weights_version: int
    weights: str
    comparisons: Sequence[Comparison] = ()
    notes: tuple[str, ...] = ()
    metrics: Metrics = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    tensors: int = 0
    record: str = ""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """What is probed.

    Attributes:
        rows: Of the source's samples, in order; None for all of them.
        indices: Sample indices that are compared.
    """

    rows: list[int] | None
    indices: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class _Probed:
    """A probe that ran.

    Attributes:
        version: Of the weights.
        is_record: Whether they are those of the record.
        columns: What was computed, by name and sample.
        inexact: Why last digits may differ from the record; '' when none may.
    """

    source: ReplaySource
    chosen: _Chosen
    version: int
    is_record: bool
    reports: Sequence[ProbeReport]
    columns: Mapping[str, Column]
    inexact: str

    def comparisons(self) -> list[Comparison]:
        """Against what was recorded."""
        source, exact = self.source, not self.inexact
        names = [n for n in TOKEN_COLUMNS if self.is_record or n not in OF_THE_WEIGHTS]
        recorded = {
            name: {i: v for i, v in column.items() if i in self.chosen.indices}
            for name, column in source.columns.items()
        }
        found = compare_columns(recorded, self.columns, names=names, exact=exact)
        if self.is_record and self.chosen.rows is None and source.steps:
            # Later steps of a rollout began on other weights.
            before, now = source.steps[0], self.reports[0].steps[0].metrics
            shared = sorted(before.keys() & now.keys())
            found += compare_numbers(before, now, names=shared, exact=exact)
        return found

    def notes(self) -> tuple[str, ...]:
        """What a person should know before the numbers."""
        notes = []
        if not self.is_record:
            notes.append(
                f"on the weights of now, which are not those of {self.source.name}: "
                f"{', '.join(sorted(OF_THE_WEIGHTS))} and the loss are not compared"
            )
        if self.inexact:
            notes.append(f"last digits may differ: {self.inexact}")
        repeats: dict[str, int] = {}
        for report in self.reports:
            for name, count in report.unequal_repeats.items():
                repeats[name] = repeats.get(name, 0) + count
        unequal = [
            f"{name} in {count} values" for name, count in repeats.items() if count
        ]
        if repeats:
            differ = f"differ: {', '.join(unequal)}" if unequal else "gave equal bits"
            notes.append(f"repeated passes {differ}")
        return tuple(notes)

    def metrics(self) -> Metrics:
        """Of the passes, and of the first step that was not made."""
        passes = merge_metrics(report.metrics for report in self.reports)
        return {**passes, **self.reports[0].steps[0].metrics}


async def probe(
    arguments: Arguments,
    source: ReplaySource,
    order: ReplayOrder,
    *,
    workers: Workers,
    recorder: Recorder,
    run_id: str,
) -> Finding:
    """Probes samples on the weights that were ordered.

    Args:
        arguments: Of the run.
        source: What was recorded.
        order: Which samples, which weights, how often.
        workers: Of the run.
        recorder: Of the probe.
        run_id: Of the run.

    Raises:
        DumpError: Weights or samples are not there.
    """
    key = arguments.reward.reward_key
    chosen = _choose(source, order)
    version, is_record = await _weights(workers, source, order, run_id=run_id)
    rollout = _in_hand(source, version=version, is_record=is_record)
    inputs = inputs_of(
        workers,
        source.samples,
        batch=arguments.batch,
        rollout=rollout,
        reward_key=key,
        rows=chosen.rows,
    )
    reports = await _reports(workers, inputs, weights=version, repeat=order.repeat)
    probed = _Probed(
        source=source,
        chosen=chosen,
        version=version,
        is_record=is_record,
        reports=reports,
        columns=_columns(reports),
        inexact=_why_inexact(source, reports, recorder.layout),
    )
    rewards = _rewards(reports)
    rows = replayed_rows(source, probed.columns, rewards=rewards, reward_key=key)
    await recorder.write(StageFile.SAMPLES, rows.samples, rollout)
    record = await recorder.write(StageFile.LOGPROBS, rows.logprobs, rollout)
    return _finding(probed, workers=workers, record=record.rpartition("/")[0])


async def _reports(
    workers: Workers, inputs: Mapping[str, RolloutInput], *, weights: int, repeat: int
) -> list[ProbeReport]:
    requests = {
        name: ProbeRequest(rollout=given, weights=weights, repeat=repeat)
        for name, given in inputs.items()
    }
    return await each_trainer(workers, "probe", requests)


def _in_hand(source: ReplaySource, *, version: int, is_record: bool) -> RolloutInHand:
    """The recorded rollout, as if it had just been generated on these weights."""
    noted = source.weights
    return RolloutInHand(
        rollout_id=source.rollout_id,
        weights_version=version,
        fingerprint=noted.fingerprint if noted and is_record else "",
        samples=source.samples,
        kept=frozenset(range(len(source.samples))),
    )


def _finding(probed: _Probed, *, workers: Workers, record: str) -> Finding:
    return Finding(
        samples=len(probed.chosen.indices),
        weights_version=probed.version,
        weights="record" if probed.is_record else "now",
        comparisons=probed.comparisons(),
        notes=probed.notes(),
        metrics=probed.metrics(),
        changed=tuple(
            f"{name}: {path}"
            for name, report in zip(workers.trainers, probed.reports, strict=True)
            for path in report.changed
        ),
        tensors=sum(report.tensors for report in probed.reports),
        record=record,
    )


async def same_weights(
    workers: Workers, source: ReplaySource, *, run_id: str
) -> tuple[int, bool]:
    """The version of now, and whether the source was recorded on it."""
    (now, *_), *_ = await call_trainers(workers, "weights_versions")
    noted = source.weights
    if noted is None:
        return now, False
    if source.run_id == run_id:
        return now, noted.version == now
    if not noted.fingerprint:
        return now, False
    fingerprints = await call_trainers(workers, "fingerprint")
    return now, fingerprints[0] == noted.fingerprint


async def _weights(
    workers: Workers, source: ReplaySource, order: ReplayOrder, *, run_id: str
) -> tuple[int, bool]:
    """Version to probe on, and whether it is the one of the record."""
    now, is_record = await same_weights(workers, source, run_id=run_id)
    if is_record or order.weights is ReplayWeights.NOW:
        return now, is_record
    noted = source.weights
    (_, *kept), *_ = await call_trainers(workers, "weights_versions")
    if noted is not None and source.run_id == run_id and noted.version in kept:
        return noted.version, True
    if order.weights is ReplayWeights.AUTO:
        return now, False
    told = (
        "are not known" if noted is None else f"(version {noted.version}) are not kept"
    )
    raise DumpError(
        f"the weights of {source.name} {told}; there are {now} (now)"
        + "".join(f", {version}" for version in kept),
        hint="raise --keep-weights, load them by --load, or use the weights of now",
    )


def _choose(source: ReplaySource, order: ReplayOrder) -> _Chosen:
    rows = {sample.index: row for row, sample in enumerate(source.samples)}
    indices = {index for index in rows if index is not None}
    if not order.samples:
        return _Chosen(rows=None, indices=frozenset(indices))
    wanted = frozenset(order.samples)
    if unknown := sorted(wanted - indices):
        raise DumpError(
            f"{source.name} has no sample {unknown[0]}",
            hint=f"its samples are {min(indices)} to {max(indices)}",
        )
    if order.alone:
        return _Chosen(rows=[rows[index] for index in order.samples], indices=wanted)
    mates = [b.samples for b in source.micro_batches if wanted & frozenset(b.samples)]
    if not mates:
        raise DumpError(
            f"{source.name} does not say which micro-batches its samples were in",
            hint="probe them alone, or all of them",
        )
    return _Chosen(
        rows=[rows[index] for batch in mates for index in batch], indices=wanted
    )


def _columns(reports: Sequence[ProbeReport]) -> dict[str, Column]:
    columns: dict[str, dict[int, Any]] = {}
    for report in reports:
        for name in TOKEN_COLUMNS:
            packed = report.columns.get(name)
            if isinstance(packed, PackedColumn):
                own = by_sample(report.columns["sample_indices"], packed.unpack())
                columns.setdefault(name, {}).update(own)
    return dict(columns)


def _rewards(reports: Sequence[ProbeReport]) -> dict[int, float]:
    """Normalised rewards by sample index."""
    found: dict[int, float] = {}
    for report in reports:
        if report.columns:
            indices, rewards = (
                report.columns["sample_indices"],
                report.columns["rewards"],
            )
            found.update(zip(indices, rewards, strict=True))
    return found


def _why_inexact(
    source: ReplaySource, reports: Sequence[ProbeReport], layout: Mapping[str, int]
) -> str:
    """Why last digits may differ; '' when every bit has to be the same."""
    if not source.micro_batches:
        return "it is not known how its samples were padded"
    if dict(source.layout) != dict(layout):
        return f"it was recorded in the layout {source.layout}, this run has {layout}"
    recorded = {(b.padded_length, b.samples) for b in source.micro_batches}
    for report in reports:
        for batch in micro_batches(report.steps):
            if (batch.padded_length, batch.samples) not in recorded:
                return "samples were computed in other micro-batches than then"
    return ""
