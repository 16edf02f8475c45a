"""Triage: verdicts left, worst first; right evidence, causes, the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget

from relax_tui.keymap import Where
from relax_tui.lines import Line, Span, line
from relax_tui.panes.numbers import number_text, status_span
from relax_tui.panes.pane import ListPane, ScrollPane
from relax_tui.panes.strip import note_rows
from relax_tui.panes.verdicts import UNHEALTHY, verdict_counts
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.sources.base import RunSnapshot, VerdictLine
from relax_tui.text import pad, visible
from relax_tui.theme import STATUS_ROLES, Glyphs


class VerdictList(ListPane):
    """One row a rule."""

    def count(self) -> int:
        """Rules that said something."""
        return len(self.snapshot.verdicts)

    def item(self, index: int, width: int) -> Line:
        """Status, rule, where first."""
        found = self.snapshot.verdicts[index]
        verdict = found.verdict
        where = visible(str(verdict.where))
        role = STATUS_ROLES.get(str(verdict.status), "")
        return (
            status_span(str(verdict.status)),
            Span(f" {pad(visible(verdict.rule), max(width - 18, 10))}",
                 role if str(verdict.status) in UNHEALTHY else ""),
            Span(f" {pad(where, 12, '>')}", "dim"),
        )  # fmt: skip

    def item_text(self, index: int) -> str:
        """Rule and summary are searched."""
        verdict = self.snapshot.verdicts[index].verdict
        return f"{verdict.status} {verdict.rule} {verdict.summary}"

    def empty(self) -> str:
        """Why there are none."""
        return "no verdict yet: checks run when their stage ends"

    def about(self) -> tuple[str, str]:
        """How many say what."""
        snapshot = self.snapshot
        view = snapshot.viewed
        one = "" if snapshot.following or not view else f"rollout {view.rollout_id}"
        return one or "worst first", verdict_counts(snapshot)

    @property
    def selected(self) -> VerdictLine | None:
        """The verdict under the cursor."""
        verdicts = self.snapshot.verdicts
        return verdicts[self.cursor] if self.cursor < len(verdicts) else None


def evidence_rows(found: VerdictLine, width: int, glyphs: Glyphs) -> list[Line]:
    """Numbers, observations, causes with what would confirm each, the next command."""
    verdict = found.verdict
    status = str(verdict.status)
    rows: list[Line] = [
        (Span(" "), status_span(status), Span(f" {visible(verdict.rule)}", "title"),
         Span(f"  guide, section {visible(verdict.section)}", "dim")),
        *note_rows(verdict.summary, width, STATUS_ROLES.get(status, "")),
    ]  # fmt: skip
    where = visible(str(verdict.where))
    again = f", {found.times} times since" if found.times > 1 else ""
    newest = found.newest
    if newest != verdict:
        again += f"; newest {newest.status} at {visible(str(newest.where))}"
    rows.append((Span(f" first at {where}{again}", "dim"),))
    if verdict.numbers:
        rows.append(_heading("numbers"))
        for name, value in verdict.numbers.items():
            text = number_text(value, glyphs)
            rows.append(
                (Span(f"   {visible(name):<14} ", "label"), Span(text, "number"))
            )
    if verdict.evidence:
        rows.append(_heading("evidence"))
        for item in verdict.evidence:
            place = f"  ({item.where!s})" if item.where else ""
            rows += _indented(f"{item.text}{place}", width)
    if verdict.causes:
        rows.append(_heading("likely causes, in order"))
        for number, cause in enumerate(verdict.causes, 1):
            rows += _indented(f"{number}. {cause.text} ({cause.confidence})", width)
            rows += _indented(f"   confirm: {cause.confirm}", width, "dim")
    if verdict.next_command:
        rows.append(_heading("next command (y copies it)"))
        rows += _indented(verdict.next_command, width, "title")
    return rows


def _heading(text: str) -> Line:
    return (Span(f" {text}", "label"),)


def _indented(text: str, width: int, role: str = "") -> list[Line]:
    return [(Span("  "), *row) for row in note_rows(text, max(width - 2, 8), role)]


class EvidencePane(ScrollPane):
    """Evidence of the selected verdict."""

    found: VerdictLine | None = None

    def show_verdict(self, found: VerdictLine | None) -> None:
        """Shows another verdict."""
        if found != self.found:
            self.offset_y = 0
        self.found = found
        self.repaint()

    def content(self, width: int) -> Sequence[Line]:
        """The evidence."""
        if self.found is None:
            return [(Span(" no verdict is selected", "dim"),)]
        return evidence_rows(self.found, width, self.look.glyphs)


class DataPane(ScrollPane):
    """Which data were read and what was missing."""

    def content(self, width: int) -> Sequence[Line]:
        """The data."""
        return data_rows(self.snapshot, width)


def data_rows(snapshot: RunSnapshot, width: int) -> list[Line]:
    """Events, records, and what is not there."""
    view = snapshot.viewed
    have = ", ".join(view.stages) if view else ""
    recorded = len(snapshot.rollouts)
    rows = note_rows(
        f"events of attempt {snapshot.header.attempt}; {recorded} rollouts recorded;"
        f" viewed: {f'rollout {view.rollout_id} ({have})' if view else 'none'}",
        width,
        "dim",
    )
    for text in snapshot.unread:
        rows += note_rows(text, width, "warn")
    missing = [v for v in snapshot.verdicts if str(v.verdict.status) == "NOT_RUN"]
    for found in missing:
        text = f"{found.verdict.rule} did not run: {found.verdict.summary}"
        rows += note_rows(text, width, "dim")
    for notice in snapshot.notices[-3:]:
        rows += note_rows(f"{notice.word}: {notice.text}", width, "dim")
    return rows


class TriageScreen(ConsoleScreen):
    """What is wrong, why, and what to do next."""

    WHERE: ClassVar[Where] = Where.TRIAGE
    DEFAULT_CSS = """
    TriageScreen #columns { height: 1fr; }
    TriageScreen #list { width: 46; height: 100%; margin: 0 1 0 0; }
    TriageScreen #evidence { width: 1fr; height: 100%; }
    TriageScreen.-medium #list { width: 34; }
    TriageScreen.-narrow #columns { layout: vertical; }
    TriageScreen.-narrow #list { width: 100%; height: 6; margin: 0; }
    TriageScreen.-narrow #evidence { height: 1fr; }
    TriageScreen #data { height: 5; }
    TriageScreen.-short #data { height: 3; }
    TriageScreen.-tiny #data { display: none; }
    TriageScreen.-zoom #list.-focused { width: 100%; height: 100%; }
    TriageScreen.-zoom #data.-focused { height: 1fr; }
    """

    def compose_body(self) -> Iterator[Widget]:
        """List, evidence, data."""
        with Horizontal(id="columns"):
            yield VerdictList(number=1, name="verdicts", id="list")
            yield EvidencePane(number=2, name="evidence", id="evidence")
        yield DataPane(number=3, name="data read", id="data")

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws a snapshot."""
        super().show(snapshot)
        self.query_one(VerdictList).show(snapshot)
        self.query_one(DataPane).show(snapshot)
        self.after_move()

    def after_move(self) -> None:
        """The evidence follows the list."""
        found = self.query_one(VerdictList).selected
        self.query_one(EvidencePane).show_verdict(found)

    def do_open(self) -> None:
        """The tokens, or the line of a log, that the verdict points at."""
        found = self.query_one(VerdictList).selected
        where = found.verdict.where if found else None
        if where is None or where.sample_index is None:
            seen = found.verdict.evidence if found else ()
            in_log = next((item for item in seen if item.file), None)
            if in_log is not None:
                from relax_tui.screens.log import LogScreen  # noqa: PLC0415 - later

                self.console.open_screen(LogScreen(in_log.file, in_log.line))
                return
            text = " this verdict points at no sample; its numbers are on the right"
            self.console.tell(line(Span(text, "dim")))
            return
        self.console.open_step(where)

    def copied(self) -> tuple[str, str]:
        """The next command where there is one, else the evidence."""
        found = self.query_one(VerdictList).selected
        if found is not None and found.verdict.next_command:
            return found.verdict.next_command, "next command"
        return super().copied()
