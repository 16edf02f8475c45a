"""Differences of two per-token columns, for strips and for the token grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relax_tui.lines import Line, Span
from relax_tui.sources.base import SampleTokens
from relax_tui.theme import Glyphs


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """What is subtracted from what."""

    left: str
    right: str
    label: str


PAIRINGS = (
    Pairing(left="log_probs", right="ref_log_probs", label="lp - ref"),
    Pairing(left="log_probs", right="rollout_log_probs", label="lp - rollout"),
    Pairing(left="rollout_log_probs", right="ref_log_probs", label="rollout - ref"),
)


def difference(tokens: SampleTokens, pairing: Pairing) -> tuple[float, ...] | None:
    """Left - right a token; None when one of them is absent."""
    left = tokens.columns.get(pairing.left)
    right = tokens.columns.get(pairing.right)
    if left is None or right is None:
        return None
    return tuple(a - b for a, b in zip(left, right, strict=True))


def missing(tokens: SampleTokens, pairing: Pairing) -> str:
    """Why a difference cannot be shown, as one sentence; '' when it can."""
    for name in (pairing.left, pairing.right):
        if name not in tokens.columns:
            return f"{name} is absent: {tokens.absent.get(name, 'not recorded')}"
    return ""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """A difference in numbers; masked tokens are counted and left out.

    Attributes:
        worst: Position of the largest finite difference; None when there is none.
        worst_abs: Its size.
    """

    tokens: int
    masked: int
    unequal: int
    nonfinite: int
    worst: int | None
    worst_abs: float | None


def counts(values: Sequence[float], mask: Sequence[int] | None) -> Counts:
    """Counts the unmasked tokens of a difference.

    Args:
        values: left - right a token; NaN where either is not finite.
        mask: loss_mask; None counts every token.

    Returns:
        The counts.
    """
    kept = [i for i in range(len(values)) if mask is None or mask[i]]
    finite = [i for i in kept if math.isfinite(values[i])]
    worst = max(finite, key=lambda i: abs(values[i]), default=None)
    if worst is not None and values[worst] == 0:
        worst = None
    return Counts(
        tokens=len(kept),
        masked=len(values) - len(kept),
        unequal=sum(values[i] != 0 for i in kept),
        nonfinite=len(kept) - len(finite),
        worst=worst,
        worst_abs=None if worst is None else abs(values[worst]),
    )


def heat(value: float) -> str:
    """Role of a difference: five buckets, so that neighbours merge on the wire."""
    if not math.isfinite(value):
        return "bad"
    size = abs(value)
    if size == 0:
        return "dim"
    if size < 1e-4:
        return "heat1"
    if size < 1e-2:
        return "heat2"
    return "heat3" if size < 0.1 else "heat4"


def strip(
    values: Sequence[float], mask: Sequence[int] | None, width: int, glyphs: Glyphs
) -> Line:
    """A difference as one row: a dot for equal, a bar for its size, x for NaN.

    Args:
        values: left - right a token.
        mask: loss_mask; masked tokens are blank.
        width: Cells there are; more tokens share cells, the largest one is drawn.
        glyphs: Of the terminal.

    Returns:
        The row.
    """
    per = max(math.ceil(len(values) / max(width, 1)), 1)
    top = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    spans: list[Span] = []
    for start in range(0, len(values), per):
        places = [
            i
            for i in range(start, min(start + per, len(values)))
            if mask is None or mask[i]
        ]
        spans.append(_cell([values[i] for i in places], top, glyphs))
    return tuple(spans)


def _cell(values: Sequence[float], top: float, glyphs: Glyphs) -> Span:
    if not values:
        return Span(" ", "masked")
    if any(not math.isfinite(v) for v in values):
        return Span("x", "bad")
    largest = max(values, key=abs)
    if largest == 0:
        return Span(glyphs.dot, "dim")
    steps = len(glyphs.bars) - 1
    step = max(1, math.ceil(abs(largest) / top * steps)) if top else 1
    return Span(glyphs.bars[min(step, steps)], heat(largest))
