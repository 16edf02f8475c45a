"""Dialogs: a confirmation, a choice, a page of text.

They are drawn as panels over the bottom of the screen. A confirmation says what will
happen, to what, and with which command line; the default is no, `enter` does not
confirm, and `y` never opens one.

A dialog owns every key from the moment it is asked for: the app hands them to
`Dialog.take_key` in the order in which they were typed, so that what is meant for the
dialog cannot reach the run while the dialog is still being drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from relax_tui.lines import Line, Span
from relax_tui.panes.pane import title_rule
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible, wrap
from relax_tui.theme import Glyphs
from relax_tui.widgets.line_view import LineView

Answer = TypeVar("Answer")
CLOSING = frozenset({"escape", "q"})


class PanelText(LineView):
    """The rows of a dialog."""

    content: Sequence[Line] = ()

    def show(self, content: Sequence[Line]) -> None:
        """Shows other rows; the panel grows to them, as far as the screen goes."""
        self.content = content
        height = max(1, min(len(content), self.app.size.height))
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The rows, from the first one."""
        return self.content[:height]


class Dialog(ModalScreen[Answer], Generic[Answer], inherit_bindings=False):
    """A panel that asks or shows something; it answers by being dismissed."""

    DEFAULT_CSS = """
    Dialog { align: left bottom; background: transparent; }
    Dialog > Vertical { width: 100%; height: auto; max-height: 100%; }
    """

    def compose(self) -> ComposeResult:
        """The panel."""
        with Vertical():
            yield PanelText(id="panel")

    def on_mount(self) -> None:
        """Draws the panel."""
        self.draw()

    def on_resize(self) -> None:
        """Draws it for the new size."""
        self.draw()

    def draw(self) -> None:
        """Draws what the dialog says now; nothing before it stands."""
        for panel in self.query(PanelText):
            width, height = self.app.size
            panel.show(self.panel_rows(width, height, panel.look.glyphs))

    def take_key(self, key: str, character: str | None) -> None:
        """Takes a key.

        Args:
            key: Textual's name of it.
            character: What it prints; None for keys that print nothing.
        """
        raise NotImplementedError

    def take_paste(self, text: str) -> None:
        """Takes a pasted text; most dialogs have no use for one."""

    def follow(self, snapshot: RunSnapshot) -> None:
        """Learns how the run is now; most dialogs ask about something fixed."""

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """The rows to draw.

        Args:
            width: Cells of a row.
            height: Rows of the screen.
            glyphs: Of the terminal.
        """
        raise NotImplementedError


class ConfirmDialog(Dialog[bool]):
    """Asks before the run is touched.

    Args:
        title: What is asked.
        effect: What will happen.
        command: The same for a shell.
    """

    def __init__(self, *, title: str, effect: str, command: str) -> None:
        super().__init__()
        self._title, self._effect, self._command = title, effect, command

    def take_key(self, key: str, character: str | None) -> None:
        """`y` is yes; a few keys are no, the others are not meant for this."""
        if key == "y":
            self.dismiss(result=True)
        elif key in CLOSING or key in ("n", "enter", "backspace"):
            self.dismiss(result=False)

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """What will happen, with which command line, and the two answers."""
        rows: list[Line] = [
            title_rule(self._title, "", width, glyphs=glyphs, focused=True)
        ]
        for head, text in (("effect", self._effect), ("command", self._command)):
            for number, piece in enumerate(wrap(text, max(width - 13, 10))):
                lead = head if number == 0 else ""
                rows.append((Span(f"  {lead:<9} ", "label"), Span(piece)))
        answers: Line = (
            Span("  y", "key"),
            Span(" yes, do it      "),
            Span("n", "key"),
            Span(" no (also Enter, Esc, q)", "dim"),
        )
        return [*rows, answers]


class ChoiceDialog(Dialog[str]):
    """A list to choose from; '' when nothing was chosen. Letters narrow it down.

    Args:
        title: What is chosen.
        options: ``(id, text, help)``.
        typed: Whether letters search (a long list) or move (a short one).
    """

    def __init__(
        self,
        *,
        title: str,
        options: Sequence[tuple[str, str, str]],
        typed: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._options, self._typed = title, tuple(options), typed
        self._filter = ""
        self._cursor = 0

    def take_key(self, key: str, character: str | None) -> None:
        """Moves, narrows down, chooses."""
        shown = self._shown()
        if key == "escape" or (key == "q" and not self._typed):
            self.dismiss("")
        elif key == "enter":
            self.dismiss(shown[self._cursor][0] if shown else "")
        elif key in ("down", "tab") or (key == "j" and not self._typed):
            self._cursor = min(self._cursor + 1, max(len(shown) - 1, 0))
        elif key in ("up", "shift+tab") or (key == "k" and not self._typed):
            self._cursor = max(self._cursor - 1, 0)
        elif key == "backspace":
            self._filter, self._cursor = self._filter[:-1], 0
        elif self._typed and character and character.isprintable():
            self._filter, self._cursor = self._filter + character, 0
        self.draw()

    def _shown(self) -> list[tuple[str, str, str]]:
        wanted = self._filter.casefold()
        return [o for o in self._options if wanted in f"{o[1]} {o[2]}".casefold()]

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """The options that fit what was typed, around the cursor."""
        shown = self._shown()
        room = max(height - 4, 1)
        first = max(0, self._cursor - room + 1)
        hint = "type to narrow down, Enter chooses, Esc closes"
        if not self._typed:
            hint = "j k move, Enter chooses, Esc closes"
        title = f"{self._title}: {self._filter}" if self._filter else self._title
        rows: list[Line] = [title_rule(title, hint, width, glyphs=glyphs, focused=True)]
        names = max((len(o[1]) for o in self._options), default=0)
        for number, (_, text, help_text) in enumerate(
            shown[first : first + room], first
        ):
            here = number == self._cursor
            rows.append(
                (
                    Span(f" {glyphs.cursor if here else ' '} ", "focus"),
                    Span(visible(f"{text:<{names}}"), "selected" if here else ""),
                    Span(f"  {visible(help_text)}", "dim"),
                )
            )
        return rows if shown else [*rows, (Span("   nothing fits", "dim"),)]


class TextDialog(Dialog[None]):
    """A page of text to read, e.g. stacks.

    Args:
        title: What it is.
        content: Raw text; it is made visible here.
        copy: Copies a text out under a name.
    """

    def __init__(
        self, *, title: str, content: str, copy: Callable[[str, str], object]
    ) -> None:
        super().__init__()
        self._title, self._content, self._copy = title, content, copy
        self._first = 0

    def take_key(self, key: str, character: str | None) -> None:
        """Scrolls, copies, closes."""
        page = max(self.app.size.height - 3, 1)
        far = 1_000_000_000
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pagedown": page, "space": page,
                 "ctrl+d": page, "pageup": -page, "ctrl+u": -page, "g": -far,
                 "home": -far, "G": far, "end": far}  # fmt: skip
        if key in CLOSING or key in ("enter", "backspace"):
            self.dismiss(None)
        elif key == "y":
            self._copy(self._content, self._title)
        elif key in steps:
            self._first += steps[key]
            self.draw()

    def panel_rows(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        """The heading, and as much of the text as there is room for."""
        hint = "j k scroll, y copies, q closes"
        heading = title_rule(self._title, hint, width, glyphs=glyphs, focused=True)
        text = wrap(self._content, max(width - 2, 8))
        room = max(height - 2, 1)
        self._first = max(0, min(self._first, len(text) - room))
        shown = text[self._first : self._first + room]
        return [heading, *((Span(" " + piece),) for piece in shown)]
