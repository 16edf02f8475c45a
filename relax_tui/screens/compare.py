"""Compare: two steps or two runs side by side, from the first place they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual import work
from textual.widget import Widget

from relax.errors import DumpError
from relax_tui.comparing import Side, compared, shell_words
from relax_tui.keymap import Where
from relax_tui.lines import Span, line
from relax_tui.panes.comparison import AlignedPane, ComparisonPane
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible


class CompareScreen(ConsoleScreen):
    """What differs above, one sample token beside token below.

    Args:
        a: One side.
        b: The other.
    """

    WHERE: ClassVar[Where] = Where.COMPARE
    DEFAULT_CSS = """
    CompareScreen #edge { display: none; }
    CompareScreen #differences { height: 2fr; }
    CompareScreen #aligned { height: 3fr; }
    CompareScreen.-tiny #differences { display: none; }
    """

    def __init__(self, a: Side, b: Side) -> None:
        super().__init__()
        self._sides = (a, b)

    def compose_body(self) -> Iterator[Widget]:
        """What differs, and where."""
        yield ComparisonPane(number=1, name="compare", id="differences")
        yield AlignedPane(number=2, name="tokens", id="aligned")

    def first_look(self) -> None:
        """Begins to compare."""
        super().first_look()
        self.query_one(AlignedPane).state = "comparing"
        self.query_one(AlignedPane).repaint()
        self.compare()

    @work(exclusive=True, group="compare")
    async def compare(self) -> None:
        """Compares, and shows what was found or why nothing was."""
        differences = self.query_one(ComparisonPane)
        tokens = self.query_one(AlignedPane)
        try:
            found = await compared(*self._sides)
        except DumpError as error:
            differences.state = tokens.state = visible(str(error))
            self.console.tell(
                line(Span(f" not compared: {visible(str(error))}", "bad"))
            )
            differences.repaint()
            tokens.repaint()
            return
        differences.show_found(found)
        tokens.show_samples(found.samples)
        self.focus_on(tokens if found.samples else differences)
        where = "tokens: h l other samples, u U other differences"
        text = where if found.samples else "no token differs"
        self.console.tell(line(Span(f" {text}", "dim")))

    def show(self, snapshot: RunSnapshot) -> None:
        """Only the edges depend on the run that is shown."""
        super().show(snapshot)

    def do_left(self) -> None:
        """The differing sample before."""
        self._sample(-1)

    def do_right(self) -> None:
        """The next differing sample."""
        self._sample(1)

    def _sample(self, step: int) -> None:
        pane = self.query_one(AlignedPane)
        moved = pane.choose(step)
        shown = pane.sample
        text = f" sample {shown.sample}" if shown else f" {visible(pane.state)}"
        end = " is the last one this way" if shown and not moved else ""
        self.console.tell(line(Span(text + end, "dim")))

    def do_next_unequal(self) -> None:
        """Next difference."""
        self._jumped(self.query_one(AlignedPane).next_unequal(1))

    def do_previous_unequal(self) -> None:
        """Difference before."""
        self._jumped(self.query_one(AlignedPane).next_unequal(-1))

    def do_worst(self) -> None:
        """The largest difference."""
        self._jumped(self.query_one(AlignedPane).go_to_worst())

    def _jumped(self, why: str) -> None:
        pane = self.query_one(AlignedPane)
        sample = pane.sample
        place = f"t{sample.start + pane.cursor}" if sample else pane.state
        self.console.tell(line(Span(f" {visible(why or place)}", "dim")))

    def copies(self) -> list[tuple[str, str, str]]:
        """The same comparison for a shell."""
        return [*super().copies(), ("shell", "command line", shell_words(*self._sides))]
