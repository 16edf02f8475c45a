"""Rows that are there only while something is wrong: lost, failed, slow, damaged."""

from __future__ import annotations

from collections.abc import Sequence

from relax_tui.lines import Line, Span, line_width
from relax_tui.panes.numbers import clock_text
from relax_tui.sources.base import Liveness, RunSnapshot
from relax_tui.text import visible, wrap
from relax_tui.theme import Glyphs
from relax_tui.widgets.line_view import LineView

COMMAND_ROWS = 3
TEXT_ROWS = 3


def alarm_rows(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """What a person must not overlook; nothing when all is well."""
    damaged: list[Line] = []
    for text in snapshot.viewed.damaged if snapshot.viewed else ():
        damaged += _marked("DAMAGED", "alarm", text, width)
    if snapshot.now.liveness is Liveness.LOST:
        return [*_lost(snapshot, width, glyphs), *damaged]
    if snapshot.failure is not None:
        return [*_failed(snapshot, width), *damaged]
    return [*_slow(snapshot, width), *damaged]


def _marked(word: str, role: str, text: str, width: int) -> list[Line]:
    """A sentence behind its mark, over a few rows; the last one is cut."""
    mark = Span(f" {word} ", role)
    indent = line_width((mark,)) + 1
    pieces = wrap(text, max(width - indent - 1, 8))
    if len(pieces) > TEXT_ROWS:
        pieces = [*pieces[: TEXT_ROWS - 1], " ".join(pieces[TEXT_ROWS - 1 :])]
    first: Line = (mark, Span(f" {pieces[0]}"))
    return [first, *((Span(" " * indent), Span(piece)) for piece in pieces[1:])]


def _slow(snapshot: RunSnapshot, width: int) -> list[Line]:
    now = snapshot.now
    slow = next((line for line in snapshot.stages if line.slow), None)
    if slow is not None:
        abort = "  A abort generation" if slow.stage == "generate" else ""
        keys: Line = (Span(f"  x stacks{abort}  X stop  K kill", "dim"),)
        return [*_marked("SLOW", "notice", f"{slow.stage}: {slow.slow}", width), keys]
    if now.liveness is Liveness.RUNNING and now.data_age.endswith(("min", "h")):
        text = f"no event for {now.data_age}, although the driver lives; x shows stacks"
        return _marked("SILENT", "notice", text, width)
    return []


def _lost(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    now = snapshot.now
    when = clock_text(now.since)
    last = f"; last sign of life {when}" if when else ""
    place = f" in rollout {now.rollout_id} {now.stage}" if now.rollout_id >= 0 else ""
    text = f"the run was lost{place}: {now.detail}{last}"
    rows = _marked("LOST", "alarm", text, width)
    again = snapshot.again
    if again is None:
        return [*rows, (Span("   what was recorded stays readable", "dim"),)]
    rows += [
        (Span(f"   {piece}", "dim"),)
        for piece in wrap(f"started again it {again.effect}:", max(width - 4, 8))
    ]
    pieces = wrap(again.command, max(width - 4, 8))
    if len(pieces) > COMMAND_ROWS:
        more = f"{glyphs.ellipsis} Y copies the whole command line"
        pieces = [*pieces[: COMMAND_ROWS - 1], more]
    return [*rows, *((Span(f"   {piece}", "title"),) for piece in pieces)]


def _failed(snapshot: RunSnapshot, width: int) -> list[Line]:
    failure = snapshot.failure
    if failure is None:
        return []
    place = f" (rollout {failure.rollout_id}" if failure.rollout_id >= 0 else ""
    place += f" {failure.stage})" if place else ""
    first = f"{failure.rank}: " if failure.rank else ""
    head = _marked("FAILED", "alarm", f"{first}{failure.what}{place}", width)
    return [*head, *((Span(f"   {visible(t)}", "dim"),) for t in failure.lines[-3:])]


class AlarmStrip(LineView):
    """Rows that are there only while something is wrong."""

    DEFAULT_CSS = "AlarmStrip { height: 0; }"

    def __init__(self) -> None:
        super().__init__(id="alarm")
        self.snapshot = RunSnapshot()
        self._height = 0

    def show(self, snapshot: RunSnapshot) -> None:
        """Grows to what there is to say."""
        self.snapshot = snapshot
        cells = self.app.size.width
        height = len(alarm_rows(snapshot, cells, self.look.glyphs))
        # However much is wrong, there is room for the panes.
        rows = self.app.size.height
        height = min(height, 1 if rows < 12 else rows // 3)
        if height != self._height:
            self._height = height
            self.styles.height = height
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The alarm."""
        return alarm_rows(self.snapshot, width, self.look.glyphs)
