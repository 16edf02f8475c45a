"""A comparison as text."""

from __future__ import annotations

import math

from relax_tui.checking.difference_types import ColumnDifference, Difference, Divergence
from relax_tui.text import cut, visible

_SHOWN = 12


def difference_text(found: Difference, *, columns: int = 80) -> str:
    """What differs, the tokens first.

    Args:
        found: The comparison.
        columns: Cells of a row.
    """
    a, b = found.rollouts
    rows = [
        f"A {visible(found.a)}  rollout {a}",
        f"B {visible(found.b)}  rollout {b}",
        *_sample_rows(found),
        *map(_column_row, found.columns),
    ]
    for name, (one, other) in list(found.numbers.items())[:_SHOWN]:
        rows.append(f"{name:<36} {_number(one):>14} {_number(other):>14}")
    if len(found.numbers) > _SHOWN:
        rows.append(f"and {len(found.numbers) - _SHOWN} more numbers: --json has them")
    for name, (left, right) in found.arguments.items():
        rows.append(f"--{name.replace('_', '-')}: {visible(left)} | {visible(right)}")
    rows += [f"cannot read: {visible(text)}" for text in found.notes]
    if not found.differs:
        rows.append("no difference")
    return "".join(f"{cut(row, columns)}\n" for row in rows)


def _sample_rows(found: Difference) -> list[str]:
    if not found.paired and not found.only_a and not found.only_b:
        return ["samples: none in one of them; numbers and arguments were compared"]
    rows = [
        f"samples: {found.paired} in both, {found.same_tokens} with equal tokens,"
        f" {found.only_a} only in A, {found.only_b} only in B"
    ]
    if found.first_tokens is not None:
        rows.append(f"first different token: {_place(found.first_tokens)}")
    if found.rewards_differ:
        rows.append(f"rewards differ in {found.rewards_differ} of {found.paired}")
    return rows


def _column_row(column: ColumnDifference) -> str:
    if not column.unequal:
        return f"{column.name}: equal to the bit in {column.tokens:,} tokens"
    largest = "" if column.max_abs is None else f", max |A-B| {column.max_abs:.3g}"
    first = "" if column.first is None else f"; first {_place(column.first)}"
    return (
        f"{column.name}: unequal {column.unequal:,} of {column.tokens:,} tokens"
        f"{largest}{first}"
    )


def _place(place: Divergence) -> str:
    other = "" if place.sample == place.other else f" (B: s{place.other})"
    values = f"{_number(place.a)} | {_number(place.b)}"
    return f"s{place.sample}{other} t{place.position}: {values}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "nan"
    return f"{value:.6g}"
