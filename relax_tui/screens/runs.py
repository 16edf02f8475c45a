"""The runs of this user, and what can be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.widget import Widget

from relax_tui.comparing import Side
from relax_tui.keymap import Where
from relax_tui.lines import Line, Span, line
from relax_tui.messages import RunChosen, RunsListed
from relax_tui.panes.pane import ListPane, ScrollPane
from relax_tui.runs import RunSummary, list_runs
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import pad, visible
from relax_tui.theme import STATUS_ROLES

_STATE_ROLES = {
    "running": "running",
    "paused": "notice",
    "stopping": "notice",
    "finished": "good",
    "stopped": "warn",
    "failed": "bad",
    "lost": "bad",
}
WHAT_CAN_BE_DONE = (
    ("relax-tui demo", "a real run of a tiny model, here and now, no GPU needed"),
    (
        "relax-tui demo --fault NAME",
        "the same with a known fault: learn what it looks like",
    ),
    ("relax-tui run --walk -- FLAGS", "your run, stopping at each check of the guide"),
    ("relax-tui attach RUN", "look at a run; several consoles may"),
    ("relax-tui show RUN", "the same as text, for a pipe or a bug report"),
    ("relax-tui stop RUN", "end a run at its next safe point"),
    ("relax-tui doctor", "what this machine and terminal can do"),
)


class RunsPane(ListPane):
    """One row a run, newest first."""

    runs: Sequence[RunSummary] = ()
    known = False

    def count(self) -> int:
        """Runs there are."""
        return len(self.runs)

    def header(self, width: int) -> Line | None:
        """Column heads."""
        heads = f"{'name':<20} {'state':<9} {'rollout':>12}  {'last event':<16} folder"
        return (Span(heads, "label"),)

    def item(self, index: int, width: int) -> Line:
        """One run."""
        run = self.runs[index]
        role = _STATE_ROLES.get(run.state, STATUS_ROLES.get(run.state, ""))
        return (
            Span(pad(visible(run.name), 20), "title"),
            Span(" "),
            Span(pad(run.state, 9), role),
            Span(pad(run.place, 13, ">"), "number"),
            Span(f"  {pad(run.last_event, 16)} ", "dim"),
            Span(visible(run.run_dir), "dim"),
        )

    def empty(self) -> str:
        """What a new user reads first."""
        if not self.known:
            return "reading the list of runs"
        return "no run yet: `relax-tui demo` starts one"

    def about(self) -> tuple[str, str]:
        """How many."""
        return f"{len(self.runs)}", self.position()


class GuidePane(ScrollPane):
    """What can be done."""

    def content(self, width: int) -> Sequence[Line]:
        """Commands and what they do."""
        room = max(len(command) for command, _ in WHAT_CAN_BE_DONE) + 2
        return [
            (Span(f" {command:<{room}}", "title"), Span(text, "dim"))
            for command, text in WHAT_CAN_BE_DONE
        ]


class RunsScreen(ConsoleScreen):
    """The first screen without arguments."""

    WHERE: ClassVar[Where] = Where.RUNS
    DEFAULT_CSS = """
    RunsScreen #runs { height: 1fr; }
    RunsScreen #guide { height: 9; }
    RunsScreen.-tiny #guide { display: none; }
    RunsScreen #edge { display: none; }
    """

    def compose_body(self) -> Iterator[Widget]:
        """The list and the guide."""
        yield RunsPane(number=1, name="runs", id="runs")
        yield GuidePane(number=2, name="what can be done", id="guide")

    def first_look(self) -> None:
        """Reads the list."""
        super().first_look()
        self.reload()

    @work(thread=True, exclusive=True, group="runs")
    def reload(self) -> None:
        """Reads the list again; many runs on a slow disk take their time."""
        # Posting does not wait: a console that is being left must not be held up.
        self.post_message(RunsListed(list_runs()))

    @on(RunsListed)
    def _listed(self, event: RunsListed) -> None:
        for pane in self.query(RunsPane):
            pane.runs, pane.known = event.runs, True
            pane.repaint()

    def show(self, snapshot: RunSnapshot) -> None:
        """The list does not depend on a run."""

    def on_screen_resume(self) -> None:
        """The list may have changed meanwhile."""
        super().on_screen_resume()
        if self.query(RunsPane):
            self.reload()

    def do_open(self) -> None:
        """Attaches to the run under the cursor."""
        pane = self.query_one(RunsPane)
        if pane.runs:
            self.post_message(RunChosen(_path(pane.runs[pane.cursor])))
        else:
            self.console.tell(line(Span(f" {pane.empty()}", "dim")))

    def do_compare_with(self) -> None:
        """The first time marks a run, the second time compares with it."""
        pane = self.query_one(RunsPane)
        if not pane.runs:
            self.console.tell(line(Span(f" {pane.empty()}", "dim")))
            return
        run = pane.runs[pane.cursor]
        marked, self._marked = self._marked, None
        if marked is None or marked == run.run_dir:
            self._marked = run.run_dir
            text = f" {visible(run.name)} is A; go to another run and press C again"
            self.console.tell(line(Span(text, "dim")))
            return
        self.compare_sides(marked, Side(path=_path(run)))

    _marked: str | None = None


def _path(run: RunSummary) -> Path:
    return Path(run.run_dir)
