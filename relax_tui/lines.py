"""What panes draw: lines of spans, each span a text and the role it plays.

A role says what a text *means* (bad, number, title …); `relax_tui.theme` decides how
that looks. Panes are functions from snapshots to lines, so the same functions serve the
screen and the headless report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from relax_tui import text as cells


class Span(NamedTuple):
    """A piece of a line; its text has gone through `relax_tui.text.visible`."""

    text: str
    role: str = ""


Line: TypeAlias = tuple[Span, ...]

BLANK: Line = ()


def line(*parts: str | Span) -> Line:
    """A line of spans; plain strings have no role."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def plain(content: Line) -> str:
    """A line's text without its roles."""
    return "".join(span.text for span in content)


def line_width(content: Line) -> int:
    """Terminal cells of a line."""
    return sum(cells.width(span.text) for span in content)


def fit(content: Line, width: int, *, ellipsis: str = "…") -> Line:
    """A line cut to at most ``width`` cells; the cut is marked."""
    if line_width(content) <= width:
        return content
    fitted: list[Span] = []
    room = width
    for number, span in enumerate(content):
        taken = cells.width(span.text)
        more = any(later.text for later in content[number + 1 :])
        if taken < room or (taken == room and not more):
            fitted.append(span)
            room -= taken
            continue
        # One cell past the room makes `cut` mark that something is missing.
        shown = cells.cut(span.text + " " * (room + 1), room, ellipsis)
        fitted.append(Span(shown, span.role))
        break
    return tuple(fitted)


def fill(content: Line, width: int) -> Line:
    """A line in exactly ``width`` cells."""
    fitted = fit(content, width)
    missing = width - line_width(fitted)
    return (*fitted, Span(" " * missing)) if missing > 0 else fitted


def join(parts: Iterable[Line], separator: str = "  ") -> Line:
    """Lines one behind the other, empty ones left out."""
    joined: list[Span] = []
    for part in parts:
        if not part:
            continue
        if joined:
            joined.append(Span(separator))
        joined.extend(part)
    return tuple(joined)


def beside(left: Line, right: Line, width: int) -> Line:
    """Left-aligned and right-aligned parts of one line; the left one gives way."""
    room = width - line_width(right)
    if room < 8:
        return fit(left, width)
    return (*fill(left, room), *right)
