"""`relax.measure.difference` for many samples at once: one number a sample.

The columns of all samples are laid end to end, so that a rollout of thousands of short
responses costs a few passes over its tokens and not a few calls a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relax.errors import RecordError
from relax.measure.nonfinite import Floats, Mask

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """Per-token columns of samples, laid end to end.

    Attributes:
        lengths: Tokens of each sample, [N].
        owner: Sample of each token, [T].
        keep: Unmasked tokens, [T].
    """

    lengths: Int64s
    owner: Int64s
    keep: Bools

    @classmethod
    def of(cls, masks: Sequence[Mask]) -> Rows:
        """From each sample's loss mask, [R] each."""
        lengths = np.array([len(mask) for mask in masks], dtype=np.int64)
        keep = np.concatenate([np.zeros(0, bool), *masks]).astype(bool)
        return cls(lengths, np.repeat(np.arange(len(masks)), lengths), keep)

    def column(self, values: Sequence[Floats | None]) -> tuple[Float64s, Bools]:
        """One column as float64, [T], and which samples have it, [N].

        Tokens of a sample that has none hold NaN.

        Raises:
            RecordError: A column has another length than its sample's mask.
        """
        there = np.array([value is not None for value in values], dtype=bool)
        parts: list[Floats] = [np.zeros(0)]
        for sample, value in enumerate(values):
            length = int(self.lengths[sample])
            part = np.full(length, np.nan) if value is None else value
            if part.shape != (length,):
                raise RecordError(
                    f"a per-token column has {part.shape} and its mask ({length},)",
                    where=f"row {sample}",
                    hint="every per-token column has one entry a response token",
                )
            parts.append(part)
        return np.concatenate(parts).astype(np.float64), there

    def count(self, tokens: Bools) -> Int64s:
        """How many of the chosen tokens each sample has, [N]."""
        return np.bincount(self.owner[tokens], minlength=len(self.lengths))

    def total(self, values: Float64s, tokens: Bools) -> Float64s:
        """Sum over the chosen tokens of each sample, [N]; 0 where there are none."""
        chosen = values[tokens]
        totals = np.bincount(
            self.owner[tokens], weights=chosen, minlength=len(self.lengths)
        )
        return totals.astype(np.float64)

    def averages(self, values: Float64s, tokens: Bools) -> list[float | None]:
        """Mean over the chosen tokens of each sample; None where there are none."""
        totals, counts = self.total(values, tokens), self.count(tokens)
        return [
            total / count if count else None
            for total, count in zip(totals.tolist(), counts.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """How two columns differ, one entry a sample; None where one has no column.

    Attributes:
        unequal: Unmasked tokens that differ, as `TokenDifference.unequal`.
        mean_abs: Mean |a - b| where both are finite; None without such a token.
        max_abs: The largest of them.
        position: Where it is, the earliest when there are several.
    """

    unequal: list[int | None]
    mean_abs: list[float | None]
    max_abs: list[float | None]
    position: list[int | None]


def compare_rows(
    rows: Rows, left: tuple[Float64s, Bools], right: tuple[Float64s, Bools]
) -> RowDifferences:
    """Compares two columns sample by sample.

    Args:
        rows: Of these samples.
        left: From `Rows.column`.
        right: Likewise.
    """
    (a, has_a), (b, has_b) = left, right
    both = has_a & has_b
    compared = rows.keep & both[rows.owner]
    unequal = compared & (a != b) & ~(np.isnan(a) & np.isnan(b))
    finite = compared & np.isfinite(a) & np.isfinite(b)
    # Two infinities are not subtracted: they are not in `finite`.
    distance = np.zeros_like(a)
    np.subtract(a, b, out=distance, where=finite)
    np.abs(distance, out=distance)
    max_abs, position = _largest(rows, distance, finite)
    counts = rows.count(unequal).tolist()
    return RowDifferences(
        unequal=[n if ok else None for n, ok in zip(counts, both, strict=True)],
        mean_abs=rows.averages(distance, finite),
        max_abs=max_abs,
        position=position,
    )


def _largest(
    rows: Rows, distance: Float64s, tokens: Bools
) -> tuple[list[float | None], list[int | None]]:
    found: list[float | None] = [None] * len(rows.lengths)
    places: list[int | None] = [None] * len(rows.lengths)
    chosen = np.flatnonzero(tokens)
    if not chosen.size:
        return found, places
    values, owner = distance[chosen], rows.owner[chosen]
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    largest = np.maximum.reduceat(values, starts)
    lengths = np.diff(np.r_[starts, chosen.size])
    hits = np.flatnonzero(values == np.repeat(largest, lengths))
    of_sample, first = np.unique(owner[hits], return_index=True)
    begins = np.cumsum(rows.lengths) - rows.lengths
    positions = chosen[hits[first]] - begins[of_sample]
    for sample, value, position in zip(of_sample, largest, positions, strict=True):
        found[sample], places[sample] = float(value), int(position)
    return found, places
