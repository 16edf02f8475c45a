"""Live: one run at a glance; what is wrong first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from relax.triage.verdict import Place
from relax_tui.keymap import Where
from relax_tui.lines import Span, line
from relax_tui.panes.choosing import Choice
from relax_tui.panes.figures import FiguresPane
from relax_tui.panes.metrics import MetricsPane
from relax_tui.panes.pane import Pane
from relax_tui.panes.responses import ResponsesPane
from relax_tui.panes.sample import SamplePane
from relax_tui.panes.stages import StagesPane
from relax_tui.panes.verdicts import VerdictsPane
from relax_tui.panes.walk import WalkPane, walk_place, walk_stop
from relax_tui.printing import quoted
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.screens.sample_choices import SampleChoices
from relax_tui.sources.base import RunSnapshot

WIDE, TALL = 110, 30


class LiveScreen(SampleChoices, ConsoleScreen):
    """Responses, numbers, verdicts and stages of the run."""

    WHERE: ClassVar[Where] = Where.LIVE
    DEFAULT_CSS = """
    LiveScreen #top { layout: vertical; height: auto; }
    LiveScreen #left { height: auto; width: 1fr; }
    LiveScreen #figures { height: 1; }
    LiveScreen #metrics { height: 2; }
    LiveScreen #verdicts { height: 2; }
    LiveScreen #stages { display: none; }
    LiveScreen #responses { height: 1fr; min-height: 2; }
    LiveScreen #sample { height: 6; }
    LiveScreen.-narrow #sample { height: 5; }

    LiveScreen.-wide.-tall #top { layout: horizontal; height: 13; }
    LiveScreen.-wide.-tall #left { height: 13; }
    LiveScreen.-wide.-tall #figures { height: 4; }
    LiveScreen.-wide.-tall #metrics { height: 6; }
    LiveScreen.-wide.-tall #stages { display: block; height: 3; }
    LiveScreen.-wide.-tall #verdicts { height: 13; margin: 0 0 0 1; }
    LiveScreen.-wide.-tall #sample { height: 10; }

    LiveScreen.-wide.-tall.-walking #top { height: 10; }
    LiveScreen.-wide.-tall.-walking #left { height: 10; }
    LiveScreen.-wide.-tall.-walking #verdicts { height: 10; }
    LiveScreen.-wide.-tall.-walking #stages { display: none; }
    LiveScreen.-wide.-tall.-walking #sample { height: 8; }
    LiveScreen.-short.-walking #metrics { display: none; }
    LiveScreen.-short.-walking #verdicts { display: none; }
    LiveScreen.-short.-walking #sample { height: 4; }
    LiveScreen.-tiny #sample, LiveScreen.-tiny #top { display: none; }
    LiveScreen.-zoom #top { height: auto; }
    LiveScreen.-zoom #left { height: auto; }
    LiveScreen.-zoom .-focused { display: block; height: 1fr; margin: 0; }
    LiveScreen.-zoom #top.-has-focus { height: 1fr; }
    LiveScreen.-zoom #left.-has-focus { height: 1fr; }
    """

    def compose_body(self) -> Iterator[Widget]:
        """Numbers above, responses below."""
        yield WalkPane()
        with Horizontal(id="top"):
            with Vertical(id="left"):
                yield FiguresPane(number=1, name="first step", id="figures")
                yield MetricsPane(number=2, name="now", id="metrics")
                yield StagesPane(number=3, name="stages", id="stages")
            yield VerdictsPane(number=4, name="verdicts", id="verdicts")
        yield ResponsesPane(number=5, name="responses", id="responses")
        yield SamplePane(number=6, name="sample", id="sample")

    def choose_samples(self, choice: Choice) -> Sequence[object]:
        """Which samples the list shows."""
        responses = self.query_one(ResponsesPane)
        responses.choose(choice)
        self.after_move()
        return responses.order

    def on_screen_resume(self) -> None:
        """A filter that was set on another screen holds here too."""
        super().on_screen_resume()
        for responses in self.query(ResponsesPane):
            if responses.choice != self.console.choice:
                responses.choose(self.console.choice)
                self.after_move()

    def first_look(self) -> None:
        """The focus begins on the responses."""
        self.focus_on(self.query_one(ResponsesPane))
        super().first_look()

    def on_resize(self) -> None:
        """Titles only where there is room for them."""
        self._fit()

    def _fit(self) -> None:
        roomy = self.size.width >= WIDE and self.size.height >= TALL
        for name in ("#figures", "#metrics", "#verdicts"):
            for pane in self.query(name).results(Pane):
                pane.titled = roomy or self.has_class("-zoom")
                pane.repaint()

    def _mark_focus(self) -> None:
        super()._mark_focus()
        current = self.current
        for container in ("#top", "#left"):
            for box in self.query(container):
                box.set_class(current in box.query(Pane), "-has-focus")

    def do_zoom(self) -> None:
        """The focused pane alone, and back."""
        super().do_zoom()
        self._mark_focus()
        self._fit()

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws a snapshot."""
        super().show(snapshot)
        self.query_one(WalkPane).show(snapshot)
        self.set_class(walk_stop(snapshot) is not None, "-walking")
        for pane in self.query(Pane):
            if not isinstance(pane, SamplePane):
                pane.show(snapshot)
        self.after_move()

    def after_move(self) -> None:
        """The sample pane follows the cursor of the responses."""
        responses = self.query_one(ResponsesPane)
        sample = self.query_one(SamplePane)
        sample.show_sample(responses.view_shown, responses.selected)

    def do_open(self) -> None:
        """The step screen, on the sample under the cursor."""
        if isinstance(self.current, VerdictsPane):
            self.do_triage()
            return
        snapshot = self.console.shown
        if snapshot.viewed is None:
            self.console.tell(line(Span(" no sample to open yet", "dim")))
            return
        responses = self.query_one(ResponsesPane)
        due = walk_place(snapshot)
        if due is not None and not responses.chosen:
            # Nobody has moved the cursor: what is wrong is what is to be seen.
            self.console.open_step(due)
            return
        selected = responses.selected
        self.console.open_step(
            Place(
                rollout_id=snapshot.viewed.rollout_id,
                sample_index=selected.index if selected else None,
            )
        )

    def copies(self) -> list[tuple[str, str, str]]:
        """Response, prompt, verdicts, path, command line."""
        offers = super().copies()
        row = self.query_one(ResponsesPane).selected
        if row is not None:
            offers.append(("response", "response", row.response))
            offers.append(("prompt", "prompt", row.prompt))
        snapshot = self.console.shown
        commands = [v.verdict.next_command or "" for v in snapshot.verdicts]
        first = next((text for text in commands if text), "")
        offers.append(("next", "next command of the worst verdict", first))
        run = quoted(snapshot.header.run_dir)
        offers.append(("attach", "command that attaches", f"relax-tui attach {run}"))
        if snapshot.again is not None:
            again = ("again", "command that starts it again", snapshot.again.command)
            offers.insert(0, again)
        return offers
