"""Comparing two columns of per-token numbers: unequal, how far, and where first.

Shapes: R response tokens of one sample.
"""
# The capital at the end of an array's name is its shape.
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relax.errors import RecordError
from relax.measure.nonfinite import Floats, Mask, TokenPlace, earlier
from relax.measure.reduction import Mean

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDifference:
    """How two columns differ over the unmasked tokens of one or more samples.

    Attributes:
        tokens: Unmasked tokens compared.
        masked: Tokens left out because their mask is 0.
        unequal: Tokens at which the two are not the same number. 0.0 and -0.0 are one
            number. NaN on both sides is not a difference (both sides count it below);
            NaN on one side is.
        first_unequal: Place of the first of them.
        max_abs: Largest |a - b| where both are finite; None when there is no such pair.
        max_abs_place: Where that is, the earliest when there are several.
        mean_abs: Sum of |a - b|, in float64, and number of pairs where both are finite.
        max_ulp: Largest distance in units in the last place of float32, over the same
            pairs; None when there is none.
        nonfinite_a: Unmasked NaN and infinities on the left side.
        nonfinite_b: The same on the right side.
    """

    tokens: int
    masked: int
    unequal: int
    first_unequal: TokenPlace | None
    max_abs: float | None
    max_abs_place: TokenPlace | None
    mean_abs: Mean
    max_ulp: int | None
    nonfinite_a: int
    nonfinite_b: int

    def merge(self, other: TokenDifference) -> TokenDifference:
        """The difference over both sets of tokens; associative and commutative."""
        mine, theirs = self._worst(), other._worst()
        max_abs, max_abs_place = min(mine, theirs, key=_worst_first)
        ulps = [ulp for ulp in (self.max_ulp, other.max_ulp) if ulp is not None]
        return TokenDifference(
            tokens=self.tokens + other.tokens,
            masked=self.masked + other.masked,
            unequal=self.unequal + other.unequal,
            first_unequal=earlier(self.first_unequal, other.first_unequal),
            max_abs=max_abs,
            max_abs_place=max_abs_place,
            mean_abs=self.mean_abs.merge(other.mean_abs),
            max_ulp=max(ulps, default=None),
            nonfinite_a=self.nonfinite_a + other.nonfinite_a,
            nonfinite_b=self.nonfinite_b + other.nonfinite_b,
        )

    def _worst(self) -> tuple[float | None, TokenPlace | None]:
        return self.max_abs, self.max_abs_place


def _worst_first(
    worst: tuple[float | None, TokenPlace | None],
) -> tuple[float, int, int]:
    """Sort key: larger differences first, then earlier places, absent ones last."""
    max_abs, place = worst
    if max_abs is None or place is None:
        return (1.0, 0, 0)
    return (-max_abs, place.sample_index, place.position)


def compare_tokens(
    a_R: Floats,
    b_R: Floats,
    mask_R: Mask | None = None,
    *,
    sample_index: int = 0,
) -> TokenDifference:
    """Compares two per-token columns of one sample.

    Args:
        a_R: Left column, shape [R], floating.
        b_R: Right column, shape [R], floating; |a - b| is taken in float64.
        mask_R: Shape [R]; tokens where it is 0 are counted as masked and not compared.
            None: every token is compared.
        sample_index: Names the sample in the places.

    Returns:
        The difference; merge those of several samples.

    Raises:
        RecordError: The three do not have one shape.
    """
    mask = np.ones(a_R.shape, dtype=bool) if mask_R is None else mask_R.astype(bool)
    _require_one_shape(a_R, b_R, mask, sample_index)
    # Exact: float64 holds every float32 and float16, and their differences in order.
    a, b = a_R.astype(np.float64), b_R.astype(np.float64)
    unequal = mask & (a != b) & ~(np.isnan(a) & np.isnan(b))
    finite = mask & np.isfinite(a) & np.isfinite(b)
    positions = np.flatnonzero(finite)
    distance = np.abs(a[positions] - b[positions])
    ulp = ulp_distance(a_R[positions], b_R[positions])
    worst = int(np.argmax(distance)) if positions.size else None
    return TokenDifference(
        tokens=int(np.count_nonzero(mask)),
        masked=int(mask.size - np.count_nonzero(mask)),
        unequal=int(np.count_nonzero(unequal)),
        first_unequal=_first(unequal, sample_index),
        max_abs=None if worst is None else float(distance[worst]),
        max_abs_place=(
            None if worst is None else TokenPlace(sample_index, int(positions[worst]))
        ),
        mean_abs=Mean(float(distance.sum()), positions.size),
        max_ulp=int(ulp.max()) if ulp.size else None,
        nonfinite_a=int(np.count_nonzero(mask & ~np.isfinite(a))),
        nonfinite_b=int(np.count_nonzero(mask & ~np.isfinite(b))),
    )


def _require_one_shape(
    a: Floats, b: Floats, mask: npt.NDArray[np.bool_], sample_index: int
) -> None:
    if not a.shape == b.shape == mask.shape or a.ndim != 1:
        raise RecordError(
            f"per-token columns do not match: {a.shape}, {b.shape}, mask {mask.shape}",
            where=f"sample {sample_index}",
            hint="every per-token column has one entry a response token",
        )


def _first(flags: npt.NDArray[np.bool_], sample_index: int) -> TokenPlace | None:
    positions = np.flatnonzero(flags)
    return TokenPlace(sample_index, int(positions[0])) if positions.size else None


def ulp_distance(a: Floats, b: Floats) -> npt.NDArray[np.int64]:
    """Number of float32 steps between two arrays of finite numbers.

    0 for equal numbers, 1 for neighbours (`numpy.nextafter`); 0.0 and -0.0 are one
    number, and the steps are counted through it. Other dtypes are rounded to float32.

    Args:
        a: Finite numbers, any shape.
        b: Finite numbers, same shape.

    Returns:
        The distances, int64, same shape.
    """
    distance: npt.NDArray[np.int64] = np.abs(_steps_from_zero(a) - _steps_from_zero(b))
    return distance


def _steps_from_zero(values: Floats) -> npt.NDArray[np.int64]:
    """Signed rank of a float32 among all float32, 0 for both zeros."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.int32).astype(np.int64)
    # A negative float's bits count away from zero below the sign bit.
    steps: npt.NDArray[np.int64] = np.where(bits < 0, -(bits & 0x7FFF_FFFF), bits)
    return steps


def absolute_quantiles(differences: Sequence[Floats]) -> dict[str, float]:
    """p50, p95 and p99 of |difference| over all given tokens.

    Quantiles do not merge: give every token there is at once. Non-finite differences
    are left out here and counted by `compare_tokens`.

    Args:
        differences: One array a sample, unmasked tokens only.

    Returns:
        Name to quantile (linear interpolation); empty when there is no finite value.
    """
    if not differences:
        return {}
    together = np.abs(np.concatenate(differences).astype(np.float64))
    finite = together[np.isfinite(together)]
    if not finite.size:
        return {}
    found = np.quantile(finite, list(QUANTILES.values()))
    return dict(zip(QUANTILES, map(float, found), strict=True))
