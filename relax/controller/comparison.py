"""What a replay gave against what was recorded, column by column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relax.measure.difference import TokenDifference, compare_tokens
from relax.measure.reduction import Metrics

Floats = NDArray[np.float32]
Column = Mapping[int, Floats]
"""A per-token column: ``{sample_index: float32 [R]}``."""

TOKEN_COLUMNS: Final = (
    "log_probs",
    "ref_log_probs",
    "entropy",
    "advantages",
    "returns",
)
OF_THE_WEIGHTS: Final = frozenset({"log_probs", "entropy"})
"""Columns that say nothing when they were computed on other weights."""

TOLERANCE: Final = 1e-5
"""Allowed |difference| / max(1, |value|) where other padding moves last digits.

The same samples padded to another length gave log-probs up to 9.5e-7 apart on CPU.
"""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One column or number, recorded and replayed.

    Attributes:
        name: The column's or metric's.
        compared: Values compared.
        unequal: Values that are not the same number.
        max_abs: Largest difference; None when nothing is comparable.
        sample_index: Where it is; None for a number of the whole step.
        position: Token of the response.
        exact: Whether every bit had to be the same; else `TOLERANCE` was allowed.
        equal: Whether it was as it had to be.
    """

    name: str
    compared: int
    unequal: int
    max_abs: float | None
    sample_index: int | None
    position: int | None
    exact: bool
    equal: bool


def compare_columns(
    recorded: Mapping[str, Column],
    replayed: Mapping[str, Column],
    *,
    names: Sequence[str],
    exact: bool,
) -> list[Comparison]:
    """Compares per-token columns over the samples that both have.

    Args:
        recorded: By name.
        replayed: By name.
        names: Columns to compare; one that either side lacks is left out.
        exact: Whether bits must be equal.

    Raises:
        RecordError: A sample's columns differ in length.
    """
    found = []
    for name in names:
        if name not in recorded or name not in replayed:
            continue
        both = sorted(recorded[name].keys() & replayed[name].keys())
        parts = [
            compare_tokens(recorded[name][i], replayed[name][i], sample_index=i)
            for i in both
        ]
        if parts:
            found.append(_of_tokens(name, _merged(parts), exact=exact))
    return found


def compare_numbers(
    recorded: Metrics, replayed: Metrics, *, names: Sequence[str], exact: bool
) -> list[Comparison]:
    """Compares metrics that both have."""
    found = []
    for name in names:
        if name not in recorded or name not in replayed:
            continue
        before, now = recorded[name].value, replayed[name].value
        if before is None or now is None:
            continue
        same = before == now or (math.isnan(before) and math.isnan(now))
        distance = abs(before - now)
        found.append(
            Comparison(
                name=name,
                compared=1,
                unequal=int(not same),
                max_abs=distance if math.isfinite(distance) else None,
                sample_index=None,
                position=None,
                exact=exact,
                equal=same or (not exact and distance <= _allowed(before)),
            )
        )
    return found


def by_sample(indices: Sequence[int], values: Sequence[Any]) -> dict[int, Any]:
    """A column by sample index, without the samples that have none."""
    pairs = zip(indices, values, strict=True)
    return {index: value for index, value in pairs if value is not None}


def _merged(parts: Sequence[TokenDifference]) -> TokenDifference:
    first, *others = parts
    for other in others:
        first = first.merge(other)
    return first


def _of_tokens(name: str, found: TokenDifference, *, exact: bool) -> Comparison:
    place = found.max_abs_place if found.unequal else None
    within = found.max_abs is None or found.max_abs <= TOLERANCE
    one_sided = found.nonfinite_a != found.nonfinite_b
    return Comparison(
        name=name,
        compared=found.tokens,
        unequal=found.unequal,
        max_abs=found.max_abs,
        sample_index=None if place is None else place.sample_index,
        position=None if place is None else place.position,
        exact=exact,
        equal=not found.unequal or (not exact and within and not one_sided),
    )


def _allowed(value: float) -> float:
    return TOLERANCE * max(1.0, abs(value))
