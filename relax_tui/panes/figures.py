"""The first rollout's figures, which stay on the screen for good."""

from __future__ import annotations

from collections.abc import Sequence

from relax_tui.lines import Line, Span, fill, join, line_width
from relax_tui.panes.numbers import status_span
from relax_tui.panes.pane import Pane
from relax_tui.sources.base import Figure, RunSnapshot
from relax_tui.theme import STATUS_ROLES, Glyphs

_SHORT = {"unequal": "uneq", "max |lp-ref|": "max", "nonfinite": "nonf",
          "grad_norm": "grad", "grad by part": "parts"}  # fmt: skip


JUDGED = 5
"""Figures that a check judges; those behind them only explain."""


def figure_rows(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """All figures, as many to a row as fit, in columns."""
    figures = snapshot.figures
    if not figures:
        return [(Span(" not yet: they come with the first rollout", "dim"),)]
    cells = [_figure(figure, glyphs) for figure in figures]
    left, right = cells[::2], [*cells[1::2], *[()] * (len(cells) % 2)]
    gap = max(line_width(cell) for cell in left) + 3
    rows: list[Line] = []
    for first, second in zip(left, right, strict=True):
        rows.append((Span(" "), *fill(first, gap), *second))
    return rows


def figure_line(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Line:
    """All figures in one row, what is wrong first when it does not fit."""
    if not snapshot.figures:
        return (Span("first step  ", "title"), Span("not yet", "dim"))
    wrong = sorted(
        snapshot.figures, key=lambda f: f.status not in ("FAIL", "NON_FINITE", "WARN")
    )
    parts = [_short(figure, glyphs) for figure in snapshot.figures]
    head = Span(f"r{snapshot.first_rollout or 0} ", "title")
    full = (head, *join(parts))
    # What no check judges gives way first.
    judged = (head, *join(parts[:JUDGED]))
    for line in (full, judged):
        if line_width(line) <= width:
            return line
    return (head, *join([_short(f, glyphs) for f in wrong], " "))


def _figure(figure: Figure, glyphs: Glyphs) -> Line:
    value = figure.text or "not yet"
    role = STATUS_ROLES.get(figure.status, "number") if figure.text else "dim"
    if figure.status == "PASS":
        role = "number"
    return (
        Span(f"{figure.label} ", "label"),
        Span(f"{value} ", role),
        status_span(figure.status) if figure.status else Span(""),
    )


def _short(figure: Figure, glyphs: Glyphs) -> Line:
    label = _SHORT.get(figure.label, figure.label)
    value = figure.text.removesuffix(" tokens").replace(" of ", "/")
    role = STATUS_ROLES.get(figure.status, "number")
    shown = status_span(figure.status).text if figure.status else ""
    return (
        Span(f"{label} ", "label"),
        Span(value or glyphs.absent, "number" if figure.status == "PASS" else role),
        Span(f" {shown}" if shown else "", role),
    )


class FiguresPane(Pane):
    """First step: KL, unequal tokens, grad_norm, non-finite values."""

    def about(self) -> tuple[str, str]:
        """The rollout they belong to."""
        first = self.snapshot.first_rollout
        return "", "" if first is None else f"rollout {first}"

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The figures."""
        if height < 2 and not self.titled:
            return [figure_line(self.snapshot, width, self.look.glyphs)]
        return figure_rows(self.snapshot, width, self.look.glyphs)
