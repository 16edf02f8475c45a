"""The rows of a step, as far as files have them → its stage files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relax.dump.manifest import Manifest
from relax.dump.readers.join import JoinedStep
from relax.dump.readers.logprobs import logprob_row
from relax.dump.readers.match import Key
from relax.dump.readers.record import StageSpool
from relax.dump.readers.rollout import Row
from relax.dump.readers.train import TrainSample
from relax.dump.readers.trained import place_rows
from relax.records.schema import TOKEN_COLUMNS, RecordMetadata, StageFile

UNKNOWN: Final = -1
"""``attempt`` and ``weights_version`` of a record whose dump does not say them."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of ``samples.arrow``, on their way to the disk.

    Attributes:
        spool: Takes them.
        keys: Of each row, in order.
    """

    spool: StageSpool
    keys: list[Key]


def record_metadata(
    *,
    rollout_id: int,
    source: str,
    coverage: Mapping[str, object],
    vocab: str,
    manifest: Manifest | None,
) -> RecordMetadata:
    """What the stage files of a dump say of themselves.

    Args:
        rollout_id: The rollout.
        source: The formats' names.
        coverage: Which ranks and samples are there.
        vocab: Name of the vocabulary file; '' without one.
        manifest: That of the dump, when it has one.
    """
    return RecordMetadata(
        run_id=manifest.run_id if manifest else "",
        attempt=manifest.attempt if manifest else UNKNOWN,
        rollout_id=rollout_id,
        weights_version=manifest.weights.version if manifest else UNKNOWN,
        weights_fingerprint=manifest.weights.fingerprint if manifest else "",
        source=source,
        layout=dict(manifest.layout) if manifest else {},
        coverage=coverage,
        vocab=vocab,
    )


def write_stages(
    folder: Path,
    rows: Rows,
    *,
    step: JoinedStep | None,
    trained: Sequence[TrainSample | None],
    metadata: RecordMetadata,
    manifest: Manifest | None,
) -> tuple[StageFile, ...]:
    """Writes the stage files; ``samples.arrow``, which says that all is there, last.

    Args:
        folder: Takes them.
        rows: Of ``samples.arrow``.
        step: What was trained; None without train dumps.
        trained: For each row its sample; empty without train dumps.
        metadata: Of every file.
        manifest: That of the dump, when it has one.
    """
    stages = [StageFile.SAMPLES]
    if step is not None:
        _write_logprobs(folder, rows, trained, metadata)
        stages.append(StageFile.LOGPROBS)
        index_of = {
            id(sample): index
            for (index, _), sample in zip(rows.keys, trained, strict=True)
        }
        places = place_rows(
            step,
            [index_of.get(id(sample)) for sample in step.samples],
            rollout_id=metadata.rollout_id,
            manifest=manifest,
        )
        if _write_places(folder, places, metadata):
            stages.append(StageFile.TRAIN)
    rows.spool.finish(_with_absent(metadata, StageFile.SAMPLES, rows.spool))
    return tuple(stages)


def _write_logprobs(
    folder: Path,
    rows: Rows,
    trained: Sequence[TrainSample | None],
    metadata: RecordMetadata,
) -> None:
    spool = StageSpool(folder, StageFile.LOGPROBS)
    for (index, _), sample in zip(rows.keys, trained, strict=True):
        spool.append(
            logprob_row(sample, rollout_id=metadata.rollout_id, sample_index=index)
        )
    spool.finish(_with_absent(metadata, StageFile.LOGPROBS, spool))


def _write_places(
    folder: Path, places: Iterable[Row], metadata: RecordMetadata
) -> bool:
    found = list(places)
    if found:
        spool = StageSpool(folder, StageFile.TRAIN)
        for row in found:
            spool.append(row)
        spool.finish(metadata)
    return bool(found)


def _with_absent(
    metadata: RecordMetadata, stage: StageFile, spool: StageSpool
) -> RecordMetadata:
    """Says why a per-token column is null in every row."""
    absent = {
        name: "the dump has none"
        for name in TOKEN_COLUMNS[stage]
        if name not in spool.filled
    }
    return dataclasses.replace(metadata, absent=absent)
