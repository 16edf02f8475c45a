"""A metric is a value with its reduction; only a log line turns it into a float.

Merging is associative and commutative, so any split of tokens over samples,
micro-batches and ranks gives the same number. An empty ``Mean`` is absent (``None``),
never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from relax.errors import RecordError


@dataclass(frozen=True, slots=True)
class Sum:
    """A total, e.g. tokens or seconds."""

    total: float

    @property
    def value(self) -> float:
        """The total itself."""
        return self.total

    def merge(self, other: Sum) -> Sum:
        """Both totals together."""
        return Sum(self.total + other.total)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean kept as its sum and its count.

    Attributes:
        total: Sum of the finite or non-finite values, as they came.
        count: Number of values.
    """

    total: float
    count: float

    @property
    def value(self) -> float | None:
        """``total / count``, or None when nothing was counted."""
        return self.total / self.count if self.count else None

    def merge(self, other: Mean) -> Mean:
        """The mean over both sets of values."""
        return Mean(self.total + other.total, self.count + other.count)


@dataclass(frozen=True, slots=True)
class Max:
    """A maximum; NaN wins over every number so that it is seen."""

    maximum: float

    @property
    def value(self) -> float:
        """The maximum itself."""
        return self.maximum

    def merge(self, other: Max) -> Max:
        """The larger of both, NaN if either is."""
        if math.isnan(self.maximum) or math.isnan(other.maximum):
            return Max(math.nan)
        return Max(max(self.maximum, other.maximum))


@dataclass(frozen=True, slots=True)
class Min:
    """A minimum; NaN wins over every number so that it is seen."""

    minimum: float

    @property
    def value(self) -> float:
        """The minimum itself."""
        return self.minimum

    def merge(self, other: Min) -> Min:
        """The smaller of both, NaN if either is."""
        if math.isnan(self.minimum) or math.isnan(other.minimum):
            return Min(math.nan)
        return Min(min(self.minimum, other.minimum))


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value that is the same on every rank, e.g. the learning rate or a step number.

    Two gauges merge to the later one; nothing is averaged.
    """

    reading: float

    @property
    def value(self) -> float:
        """The reading itself."""
        return self.reading

    def merge(self, other: Gauge) -> Gauge:
        """The later reading."""
        return other


Reduction: TypeAlias = Sum | Mean | Max | Min | Gauge
Metrics: TypeAlias = Mapping[str, Reduction]

_KINDS: dict[str, type[Sum] | type[Mean] | type[Max] | type[Min] | type[Gauge]] = {
    "sum": Sum,
    "mean": Mean,
    "max": Max,
    "min": Min,
    "gauge": Gauge,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def merge_metrics(parts: Iterable[Metrics]) -> dict[str, Reduction]:
    """Merges metrics key by key.

    Args:
        parts: Metrics of ranks, micro-batches or stages.

    Returns:
        One reduction a key.

    Raises:
        RecordError: A key has two kinds of reduction.
    """
    merged: dict[str, Reduction] = {}
    for part in parts:
        for key, reduction in part.items():
            before = merged.get(key)
            if before is None:
                merged[key] = reduction
            elif type(before) is type(reduction):
                merged[key] = before.merge(reduction)  # type: ignore[arg-type]
            else:
                raise RecordError(
                    f"metric {key!r} is a {_NAMES[type(before)]} in one part and a "
                    f"{_NAMES[type(reduction)]} in another"
                )
    return merged


def encode_number(number: float) -> float | str:
    """A float as JSON can hold it: non-finite ones become 'nan', 'inf' or '-inf'."""
    return number if math.isfinite(number) else str(float(number))


def decode_number(number: float | str) -> float:
    """The inverse of `encode_number`."""
    return float(number)


def encode_metrics(metrics: Metrics) -> dict[str, list[float | str]]:
    """Metrics as JSON: ``{key: [kind, number, …]}``."""
    encoded: dict[str, list[float | str]] = {}
    for key, reduction in metrics.items():
        numbers = (getattr(reduction, name) for name in type(reduction).__slots__)
        encoded[key] = [_NAMES[type(reduction)], *map(encode_number, numbers)]
    return encoded


def decode_metrics(encoded: Mapping[str, list[float | str]]) -> dict[str, Reduction]:
    """The inverse of `encode_metrics`.

    Raises:
        RecordError: A value is not ``[kind, number, …]`` of a known kind.
    """
    metrics: dict[str, Reduction] = {}
    for key, parts in encoded.items():
        try:
            kind, *numbers = parts
            metrics[key] = _KINDS[str(kind)](*map(decode_number, numbers))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"metric {key!r} has no known reduction: {parts!r}"
            ) from error
    return metrics


def metric_values(metrics: Metrics) -> dict[str, float]:
    """Metrics as plain floats for a log line; absent ones are left out."""
    values = {key: reduction.value for key, reduction in metrics.items()}
    return {key: value for key, value in values.items() if value is not None}
