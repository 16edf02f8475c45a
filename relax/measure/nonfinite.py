"""Counting values that are not finite numbers, before anything can repair them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating]
Mask: TypeAlias = npt.NDArray[np.integer] | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, order=True)
class TokenPlace:
    """One token of one sample; places sort by sample, then by position.

    Attributes:
        sample_index: The sample's own index in its rollout.
        position: Position in the response; j is ``tokens[T - R + j]``.
    """

    sample_index: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """How many values are not finite, by kind.

    Attributes:
        nan: Number of NaN.
        positive_infinity: Number of +inf.
        negative_infinity: Number of -inf.
        values: Number of values looked at.
        first: Place of the first one, None when all are finite.
    """

    nan: int
    positive_infinity: int
    negative_infinity: int
    values: int
    first: TokenPlace | None

    @property
    def total(self) -> int:
        """Number of values that are not finite."""
        return self.nan + self.positive_infinity + self.negative_infinity

    def merge(self, other: NonFinite) -> NonFinite:
        """The counts of both sets of values; associative and commutative."""
        return NonFinite(
            nan=self.nan + other.nan,
            positive_infinity=self.positive_infinity + other.positive_infinity,
            negative_infinity=self.negative_infinity + other.negative_infinity,
            values=self.values + other.values,
            first=earlier(self.first, other.first),
        )


def earlier(one: TokenPlace | None, other: TokenPlace | None) -> TokenPlace | None:
    """The earlier of two places, either of which may be absent."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def count_nonfinite(
    values: Floats, *, mask: Mask | None = None, sample_index: int = 0
) -> NonFinite:
    """Counts NaN, +inf and -inf in one column of one sample.

    Args:
        values: Shape [R], any floating dtype.
        mask: Shape [R]; values where it is 0 are not looked at. None: all are.
        sample_index: Names the sample in ``first``.

    Returns:
        The counts.
    """
    keep = np.ones(values.shape, dtype=bool) if mask is None else mask.astype(bool)
    bad = keep & ~np.isfinite(values)
    positions = np.flatnonzero(bad)
    return NonFinite(
        nan=int(np.count_nonzero(keep & np.isnan(values))),
        positive_infinity=int(np.count_nonzero(keep & np.isposinf(values))),
        negative_infinity=int(np.count_nonzero(keep & np.isneginf(values))),
        values=int(np.count_nonzero(keep)),
        first=TokenPlace(sample_index, int(positions[0])) if positions.size else None,
    )
