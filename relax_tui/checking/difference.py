"""Two steps, runs or files side by side: what differs, and where it first does."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax.errors import DumpError
from relax.triage.evidence import RolloutEvidence
from relax_tui.checking.aligned import aligned_samples
from relax_tui.checking.baseline import judged_numbers
from relax_tui.checking.checked import CheckOptions
from relax_tui.checking.difference_types import (
    ColumnDifference,
    Difference,
    Divergence,
)
from relax_tui.checking.gathering import Gathering
from relax_tui.checking.inputs import classify

COLUMNS: Final = (
    "rollout_log_probs",
    "log_probs",
    "ref_log_probs",
    "entropy",
    "advantages",
    "returns",
    "loss_mask",
)
_RELATIVE: Final = 1e-3


def compare(
    first: Path,
    second: Path,
    *,
    rollouts: tuple[int | None, int | None] = (None, None),
    aligned: int = 0,
) -> Difference:
    """Compares.

    Args:
        first: A: a run, a dump, a record, a log.
        second: B.
        rollouts: Of A and of B; None: the first one that both have, or else the first
            of each.
        aligned: Differing samples to give token beside token.

    Raises:
        DumpError: Something cannot be read, or has no such rollout.
    """
    with tempfile.TemporaryDirectory(prefix="relax-diff-") as scratch:
        sides = []
        for number, path in enumerate((first, second)):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            gathering = Gathering(CheckOptions(), folder)
            gathering.take(classify([path]), alone=True)
            sides.append(gathering)
        chosen = _choose(sides, (first, second), rollouts)
        evidence = [
            next(e for e in side.evidence(str(path)) if e.rollout_id == rollout)
            for side, path, rollout in zip(sides, (first, second), chosen, strict=True)
        ]
        one, other = evidence
        pairs = _pairs(one, other)
        vocabularies = [side.facts.vocabulary for side in sides]
        return Difference(
            a=str(first),
            b=str(second),
            rollouts=chosen,
            numbers=_numbers(one, other),
            arguments=_arguments(*sides),
            notes=tuple(text for side in sides for text in side.unread),
            samples=aligned_samples(one, other, pairs, vocabularies, most=aligned),
            **_samples(one, other, pairs),
        )


def _choose(
    sides: Sequence[Gathering],
    paths: tuple[Path, Path],
    wanted: tuple[int | None, int | None],
) -> tuple[int, int]:
    known = [sorted(n for n in side.parts if n >= 0) for side in sides]
    for path, have in zip(paths, known, strict=True):
        if not have:
            raise DumpError("no rollout is in it", where=str(path))
    shared = [number for number in known[0] if number in known[1]]
    chosen = []
    for path, have, number in zip(paths, known, wanted, strict=True):
        rollout = number if number is not None else (shared or have)[0]
        if rollout not in have:
            raise DumpError(
                f"has no rollout {rollout}",
                where=str(path),
                hint=f"it has {have[0]} to {have[-1]}",
            )
        chosen.append(rollout)
    return chosen[0], chosen[1]


def _numbers(
    a: RolloutEvidence, b: RolloutEvidence
) -> dict[str, tuple[float | None, float | None]]:
    ours, theirs = judged_numbers(a), judged_numbers(b)
    found: dict[str, tuple[float | None, float | None]] = {}
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(name), theirs.get(name)
        if name.startswith("perf/") or one is None or other is None:
            continue
        same = one == other or (math.isnan(one) and math.isnan(other))
        if not same and not math.isclose(one, other, rel_tol=_RELATIVE):
            found[name] = (one, other)
    return found


def _arguments(a: Gathering, b: Gathering) -> dict[str, tuple[str, str]]:
    ours, theirs = a.facts, b.facts
    if not ours.arguments or not theirs.arguments:
        return {}
    found = {}
    for name in sorted(ours.arguments.keys() | theirs.arguments.keys()):
        one, other = ours.arguments.get(name), theirs.arguments.get(name)
        if one != other and name not in ("run_dir", "run_name"):
            found[name] = (
                _value(name, one, ours.origins),
                _value(name, other, theirs.origins),
            )
    return found


def _value(name: str, value: Any, origins: Mapping[str, str]) -> str:
    origin = origins.get(name, "")
    return f"{value!r} ({origin})" if origin else repr(value)


def _pairs(a: RolloutEvidence, b: RolloutEvidence) -> list[tuple[int, int]]:
    """Rows of A and B with the same prompt, in the same place of its group."""
    rows_b = {key: row for row, key in enumerate(_keys(b))}
    return [(row, rows_b[key]) for row, key in enumerate(_keys(a)) if key in rows_b]


def _samples(
    a: RolloutEvidence, b: RolloutEvidence, pairs: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Compares the pairs."""
    count_a, count_b = len(_keys(a)), len(_keys(b))
    names_a, names_b = a.sample_indices(count_a), b.sample_indices(count_b)
    first, same = None, []
    for row, other in pairs:
        place = _first_unequal(_response(a, row), _response(b, other))
        if place is None:
            same.append((row, other))
        elif first is None:
            position, one, two = place
            first = Divergence(
                what="tokens",
                sample=names_a[row],
                other=names_b[other],
                position=position,
                a=one,
                b=two,
            )
    rewards = [(_cell(a, "reward", x), _cell(b, "reward", y)) for x, y in pairs]
    return {
        "paired": len(pairs),
        "same_tokens": len(same),
        "only_a": count_a - len(pairs),
        "only_b": count_b - len(pairs),
        "first_tokens": first,
        "rewards_differ": sum(one != other for one, other in rewards),
        "columns": tuple(_columns(a, b, same, names_a, names_b)),
    }


def _columns(
    a: RolloutEvidence,
    b: RolloutEvidence,
    pairs: Sequence[tuple[int, int]],
    names_a: Sequence[int],
    names_b: Sequence[int],
) -> Iterator[ColumnDifference]:
    for name in COLUMNS:
        tokens = unequal = 0
        largest: float | None = None
        first: Divergence | None = None
        for row, other in pairs:
            one, two = _cell(a, name, row), _cell(b, name, other)
            if one is None or two is None or len(one) != len(two):
                continue
            one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
            differs = (one != two) & ~(np.isnan(one) & np.isnan(two))
            tokens += one.size
            unequal += int(np.count_nonzero(differs))
            if not differs.any():
                continue
            with np.errstate(invalid="ignore"):
                sizes = np.abs(one - two)[differs]
            finite = sizes[np.isfinite(sizes)]
            if finite.size:
                size = float(finite.max())
                largest = size if largest is None else max(largest, size)
            if first is None:
                position = int(np.flatnonzero(differs)[0])
                first = Divergence(
                    what=name,
                    sample=names_a[row],
                    other=names_b[other],
                    position=position,
                    a=float(one[position]),
                    b=float(two[position]),
                )
        if tokens:
            yield ColumnDifference(
                name=name,
                tokens=tokens,
                unequal=unequal,
                max_abs=largest,
                first=first,
            )


def _keys(evidence: RolloutEvidence) -> list[tuple[Any, ...]]:
    """What a sample is known by: its prompt, and which of that prompt's samples."""
    columns = evidence.columns
    names = [name for name in ("prompt", "tokens", "response") if name in columns]
    if not names:
        return []
    seen: dict[Any, int] = {}
    keys = []
    for row in range(len(columns[names[0]])):
        prompt = _prompt(evidence, row)
        seen[prompt] = seen.get(prompt, 0) + 1
        keys.append((prompt, seen[prompt]))
    return keys


def _prompt(evidence: RolloutEvidence, row: int) -> Any:
    prompt = _cell(evidence, "prompt", row)
    if prompt is not None:
        return prompt
    tokens = _cell(evidence, "tokens", row)
    length = _cell(evidence, "response_length", row)
    if tokens is None or length is None:
        return row
    return tuple(int(token) for token in tokens[: len(tokens) - length])


def _response(evidence: RolloutEvidence, row: int) -> Sequence[Any] | None:
    """Response tokens; the text where there are none."""
    tokens = _cell(evidence, "tokens", row)
    length = _cell(evidence, "response_length", row)
    if tokens is not None and length is not None:
        return list(tokens[len(tokens) - length :])
    text: str | None = _cell(evidence, "response", row)
    return text


def _first_unequal(
    one: Sequence[Any] | None, other: Sequence[Any] | None
) -> tuple[int, float, float] | None:
    if one is None or other is None:
        return None
    for position in range(max(len(one), len(other))):
        a, b = _at(one, position), _at(other, position)
        if a != b:
            return position, a, b
    return None


def _at(sequence: Sequence[Any], position: int) -> float:
    """A token's id or a character's code; NaN, unequal to all, past the end."""
    if position >= len(sequence):
        return math.nan
    item = sequence[position]
    return float(ord(item)) if isinstance(item, str) else float(item)


def _cell(evidence: RolloutEvidence, name: str, row: int) -> Any:
    column = evidence.columns.get(name)
    return None if column is None else column[row]
