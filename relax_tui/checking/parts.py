"""What each source knows of a rollout, before it becomes evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from relax.events.tail import EventTail
from relax.events.types import (
    RolloutFinished,
    RunStarted,
    StageFinished,
    TrainStep,
)
from relax.measure.reduction import Gauge, Reduction
from relax.records.open import StepRecord, list_rollouts, read_vocabulary
from relax.records.schema import StageFile

_FIRST_STEP_COUNTS: Final = ("train/kl_loss", "train/grad_norm", "train/loss")


@dataclass(kw_only=True)
class RolloutParts:
    """One rollout, as far as the sources know it.

    Attributes:
        metrics: By name.
        record: Where its samples are; None without any.
        sources: Which sources knew something, for the report.
    """

    metrics: dict[str, Reduction] = field(default_factory=dict)
    record: StepRecord | None = None
    sources: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RunFacts:
    """What is known of the whole run.

    Attributes:
        arguments: By name with underscores.
        origins: Where each argument stands.
        steps_per_rollout: Optimizer steps on one rollout; None when unknown.
        vocab_size: Entries of the vocabulary; None when unknown.
        vocabulary: The file that holds its texts; None when there is none.
        own: Whether this engine made it: log-probs have a pass of their own then.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    steps_per_rollout: int | None = None
    vocab_size: int | None = None
    vocabulary: Path | None = None
    own: bool = False


Parts = dict[int, RolloutParts]


def parts_of_run(run_dir: Path, facts: RunFacts) -> Parts:
    """The rollouts of a run of this engine: events and step records.

    Of several attempts that ran one rollout the newest counts.

    Args:
        run_dir: The run folder.
        facts: Takes what the run says of itself.
    """
    parts: Parts = {}
    facts.own = True
    for event in EventTail(run_dir).poll():
        payload = event.payload
        if isinstance(payload, RunStarted):
            _take_start(payload, run_dir, facts)
        elif isinstance(payload, StageFinished):
            _part(parts, payload.rollout_id).metrics |= payload.metrics
        elif isinstance(payload, TrainStep):
            known = _part(parts, payload.rollout_id).metrics
            first = payload.step_id == 0
            known |= {
                name: value
                for name, value in payload.metrics.items()
                if first or name not in _FIRST_STEP_COUNTS
            }
        elif isinstance(payload, RolloutFinished):
            known = _part(parts, payload.rollout_id).metrics
            known |= {k: v for k, v in payload.metrics.items() if k not in known}
    for attempt, rollout_id in list_rollouts(run_dir):
        record = StepRecord(run_dir, attempt, rollout_id)
        if record.has(StageFile.SAMPLES):
            _part(parts, rollout_id).record = record
    for part in parts.values():
        part.sources = [str(run_dir)]
    return parts


def _take_start(started: RunStarted, run_dir: Path, facts: RunFacts) -> None:
    facts.steps_per_rollout = started.steps_per_rollout
    for name, entry in started.arguments.items():
        short = name.rpartition(".")[2]
        is_entry = isinstance(entry, Mapping) and "value" in entry
        facts.arguments[short] = entry["value"] if is_entry else entry
        facts.origins[short] = str(entry.get("origin", "")) if is_entry else ""
    if started.vocab and (run_dir / started.vocab).is_file():
        facts.vocabulary = run_dir / started.vocab
        facts.vocab_size = len(read_vocabulary(facts.vocabulary))


def _part(parts: Parts, rollout_id: int) -> RolloutParts:
    return parts.setdefault(rollout_id, RolloutParts())


def add_numbers(
    parts: Parts, numbers: Mapping[int, Mapping[str, float]], *, source: str
) -> None:
    """Adds a log's numbers; what a closer source has said stays.

    Args:
        parts: Takes them.
        numbers: By rollout and name.
        source: The log.
    """
    for rollout_id, values in numbers.items():
        part = _part(parts, rollout_id)
        for name, value in values.items():
            part.metrics.setdefault(name, Gauge(value))
        part.sources.append(source)


def add_record(parts: Parts, rollout_id: int, folder: Path, *, source: str) -> None:
    """Adds a step record that lies outside a run."""
    part = _part(parts, rollout_id)
    part.record = StepRecord.at(folder, rollout_id=rollout_id)
    part.sources.append(source)


def columns_of(record: StepRecord) -> dict[str, Sequence[Any]]:
    """A record's rows as the columns that rules read.

    Per-token columns become arrays, one a sample, which share the record's memory; a
    column that is null throughout is left out.
    """
    columns: dict[str, Sequence[Any]] = {}
    samples = record.table(StageFile.SAMPLES)
    if samples is None:
        return columns
    logprobs = record.table(StageFile.LOGPROBS)
    tables = [samples]
    if logprobs is not None and logprobs.num_rows == samples.num_rows:
        tables.append(logprobs)
    for table in tables:
        for name in table.column_names:
            column = table.column(name)
            if name in columns or column.null_count == len(column):
                continue
            columns[name] = _values(column)
    lengths = columns.get("response_length")
    if lengths is not None and any(length < 0 for length in lengths):
        # Only the texts are known.
        del columns["response_length"]
    return columns


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if not pa.types.is_list(kind) or not pa.types.is_primitive(kind.value_type):
        values: list[Any] = column.to_pylist()
        return values
    found: list[Any] = []
    for chunk in column.chunks:
        flat = chunk.values.to_numpy(zero_copy_only=False)
        borders = chunk.offsets.to_numpy()
        empty = chunk.is_null().to_numpy(zero_copy_only=False)
        found += [
            None if empty[row] else flat[borders[row] : borders[row + 1]]
            for row in range(len(chunk))
        ]
    return found
