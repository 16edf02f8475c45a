"""Where the samples of a replay come from: a rollout that is kept, or a dump."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relax.backends.training import PackedColumn
from relax.controller.comparison import TOKEN_COLUMNS, Column, by_sample
from relax.controller.dumper import KeptRollout
from relax.dump.catalogue import find_dumps
from relax.dump.decode.client import decode
from relax.dump.manifest import Manifest, MicroBatch, WeightsNote
from relax.engine.rollout.replayed import samples_of
from relax.engine.rollout.sample import Sample
from relax.errors import DumpError
from relax.measure.reduction import Metrics
from relax.records.open import StepRecord
from relax.records.schema import StageFile


@dataclass(frozen=True, kw_only=True)
class ReplaySource:
    """A recorded step.

    Attributes:
        name: As a person would name it.
        run_id: The run that recorded it; '' when it is not known.
        samples: All that were trained on, in their order.
        columns: Recorded per-token columns, by sample index.
        weights: What they were recorded on; None when it is not known.
        micro_batches: As recorded; none when they are not known.
        layout: Parallel sizes that it was recorded in.
        steps: Metrics of each optimizer step, when they are known.
    """

    name: str
    rollout_id: int
    samples: Sequence[Sample]
    columns: Mapping[str, Column] = field(default_factory=dict)
    run_id: str = ""
    weights: WeightsNote | None = None
    micro_batches: tuple[MicroBatch, ...] = ()
    layout: Mapping[str, int] = field(default_factory=dict)
    steps: Sequence[Metrics] = ()


def source_of_kept(
    kept: KeptRollout, *, run_id: str, layout: Mapping[str, int]
) -> ReplaySource:
    """A rollout whose columns the driver keeps."""
    columns: dict[str, dict[int, np.ndarray]] = {}
    for rank in kept.ranks.values():
        for name in TOKEN_COLUMNS:
            packed = rank.get(name)
            if isinstance(packed, PackedColumn):
                own = by_sample(rank["sample_indices"], packed.unpack())
                columns.setdefault(name, {}).update(own)
    return ReplaySource(
        name=f"rollout {kept.rollout_id}",
        rollout_id=kept.rollout_id,
        samples=kept.samples,
        columns=columns,
        run_id=run_id,
        weights=kept.weights,
        micro_batches=kept.micro_batches,
        layout=layout,
        steps=kept.steps,
    )


def source_of_dump(path: Path, *, reward_key: str | None) -> ReplaySource:
    """A dump: its samples, and what its train files recorded of them.

    Args:
        path: The rollout dump; train dumps are found by its manifest.
        reward_key: Key of the number where rewards are dicts.

    Raises:
        DumpError: There is none, or it cannot be read.
    """
    files, manifest = _files(path)
    with tempfile.TemporaryDirectory(prefix="relax-replay-") as place:
        decoded = decode(files, Path(place) / "record", reward_key=reward_key)
        record = StepRecord.at(decoded.folder, rollout_id=decoded.rollout_id)
        samples = samples_of(record, where=path)
        columns = _columns(record)
    return ReplaySource(
        name=str(path),
        rollout_id=decoded.rollout_id,
        samples=samples,
        columns=columns,
        run_id=manifest.run_id if manifest else "",
        weights=manifest.weights if manifest else None,
        micro_batches=manifest.micro_batches if manifest else (),
        layout=manifest.layout if manifest else {},
    )


def _files(path: Path) -> tuple[list[Path], Manifest | None]:
    """The rollout dump, with the train dumps that its manifest names."""
    entries = find_dumps(path)
    rollouts = [entry for entry in entries if entry.kind == "rollout"]
    if len(rollouts) != 1:
        raise DumpError(
            f"there are {len(rollouts)} rollout dumps, and a replay takes one",
            where=str(path),
            hint="name the file",
        )
    (entry,) = rollouts
    manifest = entry.manifest
    found = [file.path for file in entry.files]
    if manifest is not None and entry.manifest_path is not None:
        here = entry.manifest_path.parent
        train = [here / file.path for file in manifest.files if file.kind == "train"]
        found += [file for file in train if file.is_file()]
    return found, manifest


def _columns(record: StepRecord) -> dict[str, Column]:
    table = record.table(StageFile.LOGPROBS)
    if table is None:
        return {}
    indices = table["sample_index"].to_pylist()
    columns: dict[str, Column] = {}
    for name in TOKEN_COLUMNS:
        values = [
            None if cell is None else np.asarray(cell, np.float32)
            for cell in table[name].to_pylist()
        ]
        if own := by_sample(indices, values):
            columns[name] = own
    return columns
