"""What all screens share: edges, focus, dispatch of keys, search and copying."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget

from relax_tui.keymap import BY_ID, Where, not_here
from relax_tui.lines import Line, Span, line, plain
from relax_tui.panes.alarm import AlarmStrip
from relax_tui.panes.pane import ListPane, Pane
from relax_tui.panes.strip import (
    ClockStrip,
    FooterBar,
    MessageLine,
    StatusStrip,
)
from relax_tui.screens.entry import EntryDialog
from relax_tui.screens.order_actions import OrderActions
from relax_tui.screens.run_actions import RunActions
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax_tui.app import ConsoleApp


class ConsoleScreen(OrderActions, RunActions, Screen[None], inherit_bindings=False):
    """A screen of the console; `do_<id>` methods implement the keys of the table."""

    WHERE: ClassVar[Where] = Where.LIVE
    DEFAULT_CSS = """
    ConsoleScreen { layers: base; background: ansi_default; overflow: hidden; }
    ConsoleScreen #status, ConsoleScreen #message, ConsoleScreen #footer { height: 1; }
    ConsoleScreen #edge { height: 1; }
    ConsoleScreen #clock { width: 42; }
    ConsoleScreen.-medium #clock { width: 29; }
    ConsoleScreen.-narrow #clock { width: 20; }
    ConsoleScreen.-tiny #clock { width: 0; }
    ConsoleScreen.-zoom .pane { display: none; }
    ConsoleScreen.-zoom .pane.-focused { display: block; height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._focused: Pane | None = None
        self.goes_back_to_now = False
        self._search = ""

    @property
    def console(self) -> ConsoleApp:  # type: ignore[override]
        """The app, as what it is."""
        from relax_tui.app import ConsoleApp  # noqa: PLC0415 - the app imports screens

        if not isinstance(self.app, ConsoleApp):
            raise TypeError("screens of the console belong to its app")
        return self.app

    def compose(self) -> ComposeResult:
        """Edges around the body."""
        with Horizontal(id="edge"):
            yield StatusStrip()
            yield ClockStrip()
        yield AlarmStrip()
        yield from self.compose_body()
        yield MessageLine()
        yield FooterBar(self.WHERE)

    def compose_body(self) -> Iterable[Widget]:
        """The panes."""
        raise NotImplementedError

    def panes(self) -> list[Pane]:
        """Panes that can have the focus, in the order of `tab`."""
        return [pane for pane in self.query(Pane) if pane.display]

    @property
    def current(self) -> Pane:
        """The pane that keys go to."""
        panes = self.panes()
        # A pane that was hidden while it had the focus gives it to the first one.
        return self._focused if self._focused in panes else panes[0]

    def on_mount(self) -> None:
        """Shows what is known already."""
        for pane in self.query(Pane):
            pane.add_class("pane")
        self.call_after_refresh(self.first_look)

    def first_look(self) -> None:
        """Focus and first snapshot."""
        self._mark_focus()
        self.show(self.console.shown)
        self.say(self.console.message)

    def on_screen_resume(self) -> None:
        """Catches up with what was missed under another screen."""
        if self.is_mounted and self.query(StatusStrip):
            self.show(self.console.shown)
            self.say(self.console.message)

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws a snapshot; screens extend this with their panes."""
        status = self.query_one(StatusStrip)
        status.frozen = self.console.frozen_at
        status.show(snapshot)
        self.query_one(ClockStrip).show(snapshot)
        self.query_one(AlarmStrip).show(snapshot)
        self.query_one(FooterBar).show(snapshot)

    def say(self, message: Line) -> None:
        """Shows a message in the row above the footer."""
        self.query_one(MessageLine).say(message)

    def press(self, key_id: str) -> None:
        """Does what a key of the table means here, or says why it cannot."""
        key = BY_ID[key_id]
        if key.later:
            text = f" {key.label} is not available yet: {key.later}"
            self.console.tell(line(Span(text, "warn")))
            return
        if key_id.startswith("pane_"):
            self.do_pane(int(key_id.removeprefix("pane_")))
            return
        method = getattr(self, f"do_{key_id}", None)
        if method is None or self.WHERE not in key.where:
            self.console.tell(line(Span(f" {not_here(key, self.WHERE)}", "dim")))
            return
        method()

    # Moving

    def do_up(self) -> None:
        """One line up."""
        self._moved(self.current.move(-1), "this is the first line")

    def do_down(self) -> None:
        """One line down."""
        self._moved(self.current.move(1), "this is the last line")

    def do_page_up(self) -> None:
        """One page up."""
        self._moved(self.current.move(-self.current.page), "this is the first line")

    def do_page_down(self) -> None:
        """One page down."""
        self._moved(self.current.move(self.current.page), "this is the last line")

    def do_top(self) -> None:
        """First line."""
        self._moved(self.current.move_to(0), "this is the first line")

    def do_bottom(self) -> None:
        """Last line."""
        self._moved(self.current.move_to(-1), "this is the last line")

    def do_left(self) -> None:
        """The pane before."""
        self.do_previous_pane()

    def do_right(self) -> None:
        """The next pane."""
        self.do_next_pane()

    def do_next_pane(self) -> None:
        """Focus moves on."""
        self._focus(1)

    def do_previous_pane(self) -> None:
        """Focus moves back."""
        self._focus(-1)

    def focus_on(self, pane: Pane) -> None:
        """Gives a pane the focus."""
        if pane in self.panes():
            self._focused = pane
            self._mark_focus()

    def _focus(self, step: int) -> None:
        if self.has_class("-zoom"):
            self.remove_class("-zoom")
        panes = self.panes()
        self._focused = panes[(panes.index(self.current) + step) % len(panes)]
        self._mark_focus()
        self.console.tell(line(Span(f" focus: {self.current.pane_name}", "dim")))

    def _mark_focus(self) -> None:
        for pane in self.query(Pane):
            mine = pane is self.current
            pane.set_class(mine, "-focused")
            pane.focus_pane(focused=mine)

    def _moved(self, moved: bool, otherwise: str) -> None:  # noqa: FBT001
        self.after_move()
        if not moved:
            text = f" {self.current.pane_name}: {otherwise}"
            self.console.tell(line(Span(text, "dim")))

    def after_move(self) -> None:
        """Called when the cursor may have moved."""

    # The view

    def do_pane(self, number: int) -> None:
        """Shows or hides a pane."""
        for pane in self.query(Pane):
            if pane.number == number:
                pane.display = not pane.display
                shown = "shown" if pane.display else f"hidden; {number} shows it again"
                self.console.tell(line(Span(f" {pane.pane_name}: {shown}", "dim")))
                self._mark_focus()
                return
        self.console.tell(line(Span(f" there is no pane {number} here", "dim")))

    def do_zoom(self) -> None:
        """The focused pane alone, and back."""
        self.toggle_class("-zoom")
        on = self.has_class("-zoom")
        text = (
            f" {self.current.pane_name} alone; z brings the others back" if on else ""
        )
        self.console.tell(line(Span(text or " all panes", "dim")))

    def do_search(self) -> None:
        """Asks what to search for."""
        if not isinstance(self.current, ListPane):
            text = f" {self.current.pane_name} is not a list; tab goes to one"
            self.console.tell(line(Span(text, "dim")))
            return
        title = f"search {self.current.pane_name}"
        dialog = EntryDialog(title=title, value=self._search)
        self.console.open_screen(dialog, self._found)

    def _found(self, wanted: str | None) -> None:
        pane = self.current
        if wanted is None or not isinstance(pane, ListPane):
            return
        self._search = wanted
        found = pane.search(wanted)
        if found and pane.cursor not in pane.matches:
            pane.next_match(1)
        self.after_move()
        self.console.tell(line(Span(f" {self._search_words(found)}", "dim")))

    def _search_words(self, found: int) -> str:
        if not self._search:
            return "search cleared"
        wanted = f'"{visible(self._search)}"'
        if not found:
            return f"{wanted}: nothing in {self.current.pane_name} holds it"
        many = "1 row holds it" if found == 1 else f"{found} rows hold it"
        return f"{wanted}: {many}; n and N go from one to the next"

    def do_search_next(self) -> None:
        """Next match."""
        self._match(1)

    def do_search_previous(self) -> None:
        """Match before."""
        self._match(-1)

    def _match(self, step: int) -> None:
        pane = self.current
        if isinstance(pane, ListPane) and pane.next_match(step):
            self.after_move()
            place = pane.matches.index(pane.cursor) + 1
            text = f' "{visible(self._search)}": row {place} of {len(pane.matches)}'
        elif self._search:
            text = f" {self._search_words(0)}"
        else:
            text = " nothing is searched for; / asks"
        self.console.tell(line(Span(text, "dim")))

    # Copying out

    def copied(self) -> tuple[str, str]:
        """What `y` copies: text and its name."""
        pane = self.current
        rows = pane.text_lines(120)
        return "\n".join(plain(row).rstrip() for row in rows), pane.pane_name

    def copies(self) -> list[tuple[str, str, str]]:
        """What `Y` offers: id, name, text."""
        text, name = self.copied()
        return [("focus", name, text), ("path", "run folder", self._run_dir())]

    def _run_dir(self) -> str:
        return self.console.shown.header.run_dir
