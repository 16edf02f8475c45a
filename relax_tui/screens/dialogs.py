"""Dialogs: a confirmation, a choice, a line of text, a page of text.

They are drawn as panels over the bottom of the screen. A confirmation says what will
happen, to what, and with which command line; the default is no, `enter` does not
confirm, and `y` never opens one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from relax_tui.lines import Line, Span, plain
from relax_tui.panes.pane import title_rule
from relax_tui.text import visible, wrap
from relax_tui.widgets.line_view import LineView

_PANEL_CSS = """
    {name} {{ align: left bottom; background: transparent; }}
    {name} > Vertical {{ width: 100%; height: auto; max-height: 100%; }}
"""


class PanelText(LineView):
    """Fixed rows inside a dialog, from the point to which it was scrolled."""

    def __init__(self, *, id: str = "panel") -> None:
        super().__init__(id=id)
        self.content: Sequence[Line] = ()
        self.offset_y = 0

    def show(self, content: Sequence[Line]) -> None:
        """Shows other rows; the panel grows to them, as far as the screen goes."""
        self.content = content
        self.styles.height = max(1, min(len(content), self.app.size.height - 2))
        self.repaint()

    def scroll_rows(self, delta: int) -> None:
        """Scrolls by rows."""
        last = max(len(self.content) - self.size.height, 0)
        self.offset_y = max(0, min(self.offset_y + delta, last))
        self.repaint()

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """The rows in view."""
        return self.content[self.offset_y : self.offset_y + height]


class ConfirmDialog(ModalScreen[bool]):
    """Asks before the run is touched.

    Args:
        title: What is asked.
        effect: What will happen.
        command: The same for a shell.
    """

    DEFAULT_CSS = _PANEL_CSS.format(name="ConfirmDialog")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q,enter,backspace", "answer(False)", show=False),
    ]

    def __init__(self, *, title: str, effect: str, command: str) -> None:
        super().__init__()
        self._title, self._effect, self._command = title, effect, command

    def compose(self) -> ComposeResult:
        """The panel."""
        with Vertical():
            yield PanelText()

    def on_mount(self) -> None:
        """Draws the question."""
        panel = self.query_one(PanelText)
        width = self.app.size.width
        glyphs = panel.look.glyphs
        room = max(width - 13, 10)
        rows: list[Line] = [
            title_rule(self._title, "", width, glyphs=glyphs, focused=True)
        ]
        for head, text in (("effect", self._effect), ("command", self._command)):
            for number, piece in enumerate(wrap(text, room)):
                lead = head if number == 0 else ""
                rows.append((Span(f"  {lead:<9} ", "label"), Span(piece)))
        rows.append(
            (
                Span("  y", "key"),
                Span(" yes, do it      "),
                Span("n", "key"),
                Span(" no (also Enter, Esc, q)", "dim"),
            )
        )
        panel.show(rows)

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001
        """Closes with the answer."""
        self.dismiss(answer)


class ChoiceDialog(ModalScreen[str]):
    """A list to choose from; '' when nothing was chosen. Letters narrow it down.

    Args:
        title: What is chosen.
        options: ``(id, text, help)``.
        typed: Whether letters search (a long list) or move (a short one).
    """

    DEFAULT_CSS = _PANEL_CSS.format(name="ChoiceDialog")

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

    def compose(self) -> ComposeResult:
        """The panel."""
        with Vertical():
            yield PanelText()

    def on_mount(self) -> None:
        """Draws the list."""
        self._draw()

    def on_key(self, event: object) -> None:
        """Moves, narrows down, chooses."""
        key, character = event.key, event.character  # type: ignore[attr-defined]
        event.stop()  # type: ignore[attr-defined]
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
        if self.is_attached:
            self._draw()

    def _shown(self) -> list[tuple[str, str, str]]:
        wanted = self._filter.casefold()
        return [o for o in self._options if wanted in f"{o[1]} {o[2]}".casefold()]

    def _draw(self) -> None:
        panel = self.query_one(PanelText)
        width, height = self.app.size
        glyphs = panel.look.glyphs
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
            mark = glyphs.cursor if here else " "
            role = "selected" if here else ""
            rows.append(
                (
                    Span(f" {mark} ", "focus"),
                    Span(visible(f"{text:<{names}}"), role),
                    Span(f"  {visible(help_text)}", "dim"),
                )
            )
        if not shown:
            rows.append((Span("   nothing fits", "dim"),))
        panel.show(rows)


class EntryDialog(ModalScreen[str | None]):
    """Asks for a line of text; None when it was closed without one.

    Args:
        title: What is asked for.
        hint: What can be written.
        value: What stands there at first.
    """

    DEFAULT_CSS = (
        _PANEL_CSS.format(name="EntryDialog")
        + """
    EntryDialog Input, EntryDialog Input:focus {
        height: 1; border: none; padding: 0 1; background: transparent;
    }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False, priority=True)
    ]

    def __init__(
        self, *, title: str, hint: Sequence[str] = (), value: str = ""
    ) -> None:
        super().__init__()
        self._title, self._hint, self._value = title, tuple(hint), value

    def compose(self) -> ComposeResult:
        """Heading and entry."""
        with Vertical():
            yield PanelText()
            entry = Input(self._value, select_on_focus=False)
            entry.cursor_blink = False
            yield entry

    def on_mount(self) -> None:
        """Draws the heading."""
        panel = self.query_one(PanelText)
        width = self.app.size.width
        hint = "Enter sets it, Esc leaves it as it was"
        rule = title_rule(
            self._title, hint, width, glyphs=panel.look.glyphs, focused=True
        )
        panel.show([rule, *((Span(f"  {text}", "dim"),) for text in self._hint)])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Closes with the text."""
        self.dismiss(event.value)

    def action_close(self) -> None:
        """Closes without a text."""
        self.dismiss(None)


class TextDialog(ModalScreen[None]):
    """A page of text to read, e.g. stacks.

    Args:
        title: What it is.
        content: Raw text; it is made visible here.
    """

    DEFAULT_CSS = _PANEL_CSS.format(name="TextDialog")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,enter,backspace", "close", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("g,home", "scroll(-1000000)", show=False),
        Binding("G,end", "scroll(1000000)", show=False),
        Binding("y", "copy", show=False),
    ]

    def __init__(self, *, title: str, content: str) -> None:
        super().__init__()
        self._title, self._content = title, content

    def compose(self) -> ComposeResult:
        """Heading and text."""
        with Vertical():
            yield PanelText(id="heading")
            yield PanelText()

    def on_mount(self) -> None:
        """Draws the page."""
        width = self.app.size.width
        heading = self.query_one("#heading", PanelText)
        hint = "j k scroll, y copies, q closes"
        rule = title_rule(
            self._title, hint, width, glyphs=heading.look.glyphs, focused=True
        )
        heading.show([rule])
        self.query_one("#panel", PanelText).show(
            [(Span(" " + text),) for text in wrap(self._content, max(width - 2, 8))]
        )

    def action_scroll(self, delta: int) -> None:
        """Scrolls by rows."""
        self.query_one("#panel", PanelText).scroll_rows(delta)

    def action_page(self, delta: int) -> None:
        """Scrolls by pages."""
        panel = self.query_one("#panel", PanelText)
        panel.scroll_rows(delta * max(panel.size.height - 1, 1))

    def action_copy(self) -> None:
        """Copies the whole text."""
        copy = getattr(self.app, "copy_out", None)
        if callable(copy):
            copy(self._content, self._title)

    def action_close(self) -> None:
        """Closes the page."""
        self.dismiss(None)


def shown_text(dialog: ModalScreen[object]) -> str:
    """What a dialog shows, as plain text."""
    return "\n".join(
        plain(row) for panel in dialog.query(PanelText) for row in panel.content
    )
