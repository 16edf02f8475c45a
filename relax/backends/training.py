"""What a training worker is given and gives back: the seam between driver and trainer.

Plain values without tensors, so that the driver never imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax.dump.manifest import MicroBatch
from relax.measure.reduction import Metrics


@dataclass(frozen=True, kw_only=True)
class TrainerOpened:
    """What a training worker says of itself once it is up.

    Attributes:
        has_reference: Whether it holds reference weights.
        layout: Axis name → size, the same on every rank.
        data_rank: The replica it is part of.
    """

    pid: int
    weights_version: int
    has_reference: bool
    layout: Mapping[str, int]
    data_rank: int


@dataclass(frozen=True, kw_only=True)
class RolloutInput:
    """One replica's samples of a rollout, as columns; one entry a sample.

    Rewards come whole: baselines need every sample of a group, wherever it is trained.

    Attributes:
        places: Positions of the replica's samples among the rollout's trainable ones.
        step_sizes: How many of its samples each optimizer step takes, in order.
        all_rewards: Scalar rewards of *all* trainable samples, before normalisation.
        all_groups: Their groups.
        kept: Positions whose token columns go into the record.
        observed: Measure more than upstream's means, and make the record's rows.
    """

    rollout_id: int
    sample_index: Sequence[int]
    group_index: Sequence[int]
    tokens: Sequence[np.ndarray[Any, Any]]
    response_length: Sequence[int]
    loss_mask: Sequence[np.ndarray[Any, Any]]
    rollout_log_probs: Sequence[np.ndarray[Any, Any] | None]
    places: Sequence[int]
    step_sizes: Sequence[int]
    all_rewards: Sequence[float]
    all_groups: Sequence[int]
    kept: frozenset[int]
    observed: bool


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """A log-prob pass that really ran.

    Attributes:
        pass_id: Which one, e.g. ``actor#2``.
        metrics: What can be measured after it.
    """

    pass_id: str
    metrics: Metrics


@dataclass(frozen=True, kw_only=True)
class PackedColumn:
    """A per-token column on its way between processes: one buffer, not one a sample.

    Attributes:
        values: The samples' values one after the other.
        lengths: R of each sample; -1 for a sample that has none.
    """

    values: np.ndarray[Any, Any]
    lengths: Sequence[int]

    @classmethod
    def pack(cls, column: Sequence[np.ndarray[Any, Any] | None]) -> PackedColumn:
        """Joins a column of one array [R] a sample, or None."""
        present = [array for array in column if array is not None]
        values = np.concatenate(present) if present else np.empty(0, np.float32)
        lengths = [-1 if array is None else array.size for array in column]
        return cls(values=values, lengths=lengths)

    def unpack(self) -> list[np.ndarray[Any, Any] | None]:
        """The column again; the arrays are views of one buffer."""
        column: list[np.ndarray[Any, Any] | None] = []
        start = 0
        for length in self.lengths:
            column.append(None if length < 0 else self.values[start : start + length])
            start += max(length, 0)
        return column


@dataclass(frozen=True, kw_only=True)
class AdvantageReport:
    """Advantages are there, and with them the rows of ``logprobs.arrow``.

    Attributes:
        rows: Columns with one value a sample; none on a rank that repeats another's.
        token_rows: Columns with one array a sample.
    """

    metrics: Metrics
    rows: Mapping[str, list[Any]]
    token_rows: Mapping[str, PackedColumn]

    def columns(self) -> dict[str, list[Any]]:
        """All columns of ``logprobs.arrow``."""
        tokens = {name: packed.unpack() for name, packed in self.token_rows.items()}
        return {**self.rows, **tokens}


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Weights on their way to the engine.

    Attributes:
        buckets: Ray references; each holds ``{HF name: array}``.
        digests: sha256 of each tensor as it was sent, in the model's order.
        fingerprint: Of all tensors as they were sent.
    """

    buckets: Sequence[Any]
    version: int
    digests: Mapping[str, str]
    fingerprint: str
    tensors: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One optimizer step.

    Attributes:
        step_id: Number within the rollout.
        metrics: ``train/…``.
        vacuous: Keys that are zero by construction.
        skipped: The optimizer refused the step.
        placements: Of the rank's samples; none on a rank that repeats another's.
            ``(sample_index, micro_batch, rank, place, padded_length)``.
    """

    step_id: int
    metrics: Metrics
    vacuous: tuple[str, ...]
    skipped: bool
    placements: Sequence[tuple[int, int, int, int, int]]


def micro_batches(steps: Sequence[StepReport]) -> list[MicroBatch]:
    """The micro-batches of one rank's steps, as a manifest names them."""
    found: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}
    for step in steps:
        for sample_index, number, rank, place, padded in step.placements:
            key = (step.step_id, rank, number, padded)
            found.setdefault(key, []).append((place, sample_index))
    return [
        MicroBatch(
            step_id=step_id,
            rank=rank,
            number=number,
            padded_length=padded,
            samples=tuple(sample_index for _, sample_index in sorted(rows)),
        )
        for (step_id, rank, number, padded), rows in found.items()
    ]


def train_rows(steps: Sequence[StepReport], *, rollout_id: int) -> dict[str, list[Any]]:
    """Columns of ``train.arrow`` (`relax.records.schema.TRAIN`)."""
    placed = [(step.step_id, *place) for step in steps for place in step.placements]
    names = (
        "step_id", "sample_index", "micro_batch", "rank", "place", "padded_length",
    )  # fmt: skip
    columns = {name: [row[i] for row in placed] for i, name in enumerate(names)}
    return {"rollout_id": [rollout_id] * len(placed), **columns}
