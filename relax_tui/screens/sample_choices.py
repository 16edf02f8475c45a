"""`&` and `O`: which samples the lists show, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from relax.errors import ArgumentError
from relax_tui.lines import Span, line
from relax_tui.panes.choosing import FORMS, ORDERS, Choice
from relax_tui.screens.dialogs import ChoiceDialog
from relax_tui.screens.entry import EntryDialog
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax_tui.app import ConsoleApp


class SampleChoices:
    """Mixed into the screens that list samples."""

    console: ConsoleApp

    def choose_samples(self, choice: Choice) -> Sequence[object]:
        """Shows a choice; returns the samples that are left."""
        raise NotImplementedError

    def do_filter(self) -> None:
        """Asks for conditions."""
        before = self.console.choice
        dialog = EntryDialog(title=f"only: {FORMS}", value=before.wanted)

        def typed(wanted: str | None) -> None:
            if wanted is None:
                return
            try:
                choice = Choice.parse(wanted, order=before.order)
            except ArgumentError as error:
                text = f" not filtered: {error.what}; {error.hint}".rstrip("; ")
                self.console.tell(line(Span(visible(text), "warn")))
                return
            self._chose(choice)

        self.console.open_screen(dialog, typed)

    def do_sort(self) -> None:
        """Asks for an order."""

        def chosen(number: str | None) -> None:
            if number:
                wanted = self.console.choice.wanted
                self._chose(Choice(wanted=wanted, order=ORDERS[int(number)][0]))

        options = [(str(n), name, about) for n, (_, name, about) in enumerate(ORDERS)]
        self.console.open_screen(ChoiceDialog(title="sort", options=options), chosen)

    def _chose(self, choice: Choice) -> None:
        self.console.choice = choice
        left = len(self.choose_samples(choice))
        view = self.console.shown.viewed
        every = len(view.rows) if view else 0
        words = visible(choice.words) or "all samples, worst first"
        text = f" {left} of {every} samples: {words}"
        self.console.tell(line(Span(text, "dim" if left else "warn")))
