"""Curves in a row of block characters, or of ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax_tui.lines import Line, Span
from relax_tui.theme import Glyphs


def sparkline(
    points: Sequence[float | None], cells: int, glyphs: Glyphs, *, role: str = "spark"
) -> Line:
    """The newest points as one row; each point is a cell, more points share cells.

    Absent points are blank, non-finite ones an ``x`` in the role of alarm: neither is
    drawn as a zero.

    Args:
        points: Values, oldest first; None where there is none.
        cells: Cells there are.
        glyphs: Of the terminal.
        role: Role of the bars.

    Returns:
        Spans of at most ``cells`` cells.
    """
    shown = shrink(points, cells)
    finite = [p for p in shown if p is not None and math.isfinite(p)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    spans: list[Span] = []
    for point in shown:
        if point is None:
            span = Span(" ", role)
        elif not math.isfinite(point):
            span = Span("x", "bad")
        else:
            span = Span(bar(point, low, high, glyphs), role)
        if spans and spans[-1].role == span.role:
            spans[-1] = Span(spans[-1].text + span.text, role)
        else:
            spans.append(span)
    return tuple(spans)


def bar(value: float, low: float, high: float, glyphs: Glyphs) -> str:
    """One block between ``low`` (the lowest visible block) and ``high`` (full)."""
    steps = len(glyphs.bars) - 1
    if high <= low:
        return glyphs.bars[1]
    share = (value - low) / (high - low)
    return glyphs.bars[1 + min(int(share * steps), steps - 1)]


def shrink(points: Sequence[float | None], cells: int) -> list[float | None]:
    """At most ``cells`` points that tell the same story.

    Neighbours share a cell: a non-finite value wins, else the one farthest from the
    cell's mean, so that a spike is never lost. Cell borders depend on the number of
    points only by powers of two, so a growing curve does not crawl.
    """
    if cells <= 0:
        return []
    per = 1
    while math.ceil(len(points) / per) > cells:
        per *= 2
    return [_one(points[i : i + per]) for i in range(0, len(points), per)]


def _one(points: Sequence[float | None]) -> float | None:
    present = [p for p in points if p is not None]
    if not present:
        return None
    broken = [p for p in present if not math.isfinite(p)]
    if broken:
        return broken[0]
    mean = math.fsum(present) / len(present)
    return max(present, key=lambda p: abs(p - mean))
