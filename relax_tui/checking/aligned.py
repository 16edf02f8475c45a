"""Samples of A and B token beside token, those that differ first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax.measure.reduction import decode_number, encode_number
from relax.records.open import read_vocabulary
from relax.triage.evidence import RolloutEvidence

COLUMNS: Final = ("log_probs", "rollout_log_probs", "ref_log_probs")
_TOKENS: Final = 4096
"""Positions of a sample that are given, around the first one that differs."""
_BEFORE: Final = 512


@dataclass(frozen=True, kw_only=True)
class AlignedSide:
    """One side of a sample; every column is aligned to `ids`.

    Attributes:
        ids: Token ids of the response, from the sample's `start`.
        texts: Each token's text; () without a vocabulary.
        columns: Log-prob columns that are there.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...] = ()
    columns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AlignedSample:
    """A sample of A beside its partner in B.

    Attributes:
        sample, other: Its index in A and in B.
        start: Position of the first token given.
        first: Position of the first token that differs; None when none does.
        worst: Largest |A - B| of log_probs before that; None without any.
    """

    sample: int
    other: int
    start: int
    first: int | None
    worst: float | None
    a: AlignedSide
    b: AlignedSide

    def to_json(self) -> dict[str, Any]:
        """As plain data; non-finite numbers become texts."""
        worst = None if self.worst is None else encode_number(self.worst)
        return {
            "sample": self.sample,
            "other": self.other,
            "start": self.start,
            "first": self.first,
            "worst": worst,
            "a": _side_to_json(self.a),
            "b": _side_to_json(self.b),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> AlignedSample:
        """The inverse of `to_json`."""
        worst = plain["worst"]
        return cls(
            sample=plain["sample"],
            other=plain["other"],
            start=plain["start"],
            first=plain["first"],
            worst=None if worst is None else decode_number(worst),
            a=_side_from_json(plain["a"]),
            b=_side_from_json(plain["b"]),
        )


def _side_to_json(side: AlignedSide) -> dict[str, Any]:
    columns = {
        name: [encode_number(value) for value in values]
        for name, values in side.columns.items()
    }
    return {"ids": list(side.ids), "texts": list(side.texts), "columns": columns}


def _side_from_json(plain: Mapping[str, Any]) -> AlignedSide:
    return AlignedSide(
        ids=tuple(plain["ids"]),
        texts=tuple(plain["texts"]),
        columns={
            name: tuple(map(decode_number, values))
            for name, values in plain["columns"].items()
        },
    )


def aligned_samples(
    a: RolloutEvidence,
    b: RolloutEvidence,
    pairs: Sequence[tuple[int, int]],
    vocabularies: Sequence[Path | None],
    *,
    most: int,
) -> tuple[AlignedSample, ...]:
    """The pairs that differ: first by tokens, then by log_probs, the largest first.

    Args:
        a: Rollout of A.
        b: Rollout of B.
        pairs: Rows of both.
        vocabularies: Where the token texts of A and B are.
        most: How many to give.
    """
    if most < 1:
        return ()
    found = sorted(_differing(a, b, pairs), key=lambda place: place[0])[:most]
    texts = [read_vocabulary(path).text if path else None for path in vocabularies]
    names_a = a.sample_indices(_rows(a))
    names_b = b.sample_indices(_rows(b))
    made = []
    for (_, size), row, other, first in found:
        start = max(0, (first or 0) - _BEFORE)
        sides = [
            _side(evidence, at, start, text)
            for evidence, at, text in zip((a, b), (row, other), texts, strict=True)
        ]
        made.append(
            AlignedSample(
                sample=names_a[row],
                other=names_b[other],
                start=start,
                first=first,
                worst=-size if size else None,
                a=sides[0],
                b=sides[1],
            )
        )
    return tuple(made)


_Place = tuple[tuple[bool, float], int, int, int | None]


def _differing(
    a: RolloutEvidence, b: RolloutEvidence, pairs: Sequence[tuple[int, int]]
) -> Iterator[_Place]:
    """What orders it, both rows, and the first unequal token, of each that differs."""
    for row, other in pairs:
        one, two = _ids(a, row), _ids(b, other)
        if one is None or two is None:
            continue
        first = _first(one, two)
        upto = min(len(one), len(two)) if first is None else first
        size = _largest(_cell(a, "log_probs", row), _cell(b, "log_probs", other), upto)
        if first is not None or size:
            yield (first is None, -size), row, other, first


def _first(one: np.ndarray, two: np.ndarray) -> int | None:
    shared = min(len(one), len(two))
    places = np.flatnonzero(one[:shared] != two[:shared])
    if places.size:
        return int(places[0])
    return None if len(one) == len(two) else shared


def _largest(one: Any, two: Any, upto: int) -> float:
    """Largest |A - B| of the first tokens; infinite where only one is not finite."""
    if one is None or two is None or not upto:
        return 0.0
    left = np.asarray(one[:upto], np.float64)
    right = np.asarray(two[:upto], np.float64)
    differs = (left != right) & ~(np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        sizes = np.abs(left - right)[differs]
    sizes[~np.isfinite(sizes)] = np.inf
    return float(sizes.max()) if sizes.size else 0.0


def _side(evidence: RolloutEvidence, row: int, start: int, text: Any) -> AlignedSide:
    ids = _ids(evidence, row)
    kept = () if ids is None else tuple(map(int, ids[start : start + _TOKENS]))
    columns = {}
    for name in COLUMNS:
        values = _cell(evidence, name, row)
        if values is not None:
            part = values[start : start + _TOKENS]
            columns[name] = tuple(float(value) for value in part)
    return AlignedSide(
        ids=kept, texts=tuple(text(kept)) if text else (), columns=columns
    )


def _ids(evidence: RolloutEvidence, row: int) -> np.ndarray | None:
    tokens = _cell(evidence, "tokens", row)
    length = _cell(evidence, "response_length", row)
    if tokens is None or length is None:
        return None
    return np.asarray(tokens[len(tokens) - length :])


def _rows(evidence: RolloutEvidence) -> int:
    return max((len(column) for column in evidence.columns.values()), default=0)


def _cell(evidence: RolloutEvidence, name: str, row: int) -> Any:
    column = evidence.columns.get(name)
    return None if column is None else column[row]
