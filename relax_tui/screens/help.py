"""Help: this screen's keys, then all keys, then what the checks mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from textual.widget import Widget

from relax_tui.keymap import KEYS, Group, Where, printed
from relax_tui.lines import BLANK, Line, Span
from relax_tui.panes.pane import ScrollPane
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible, wrap

HELP_FOLDER = Path(__file__).parent.parent / "help"
PAGES = ("checks.md",)


class HelpPane(ScrollPane):
    """The help text."""

    where = Where.LIVE

    def content(self, width: int) -> Sequence[Line]:
        """Keys first, then the pages."""
        rows = key_rows(self.where, width)
        for page in PAGES:
            rows.append(BLANK)
            rows += page_rows(HELP_FOLDER / page, width)
        return rows

    def about(self) -> tuple[str, str]:
        """For which screen."""
        return f"the {self.where} screen", "j k scroll, q closes"


def key_rows(where: Where, width: int) -> list[Line]:
    """Keys by group; those of other screens say where they work."""
    rows: list[Line] = []
    for group in Group:
        rows.append((Span(f" {group.value}", "title"),))
        for key in KEYS:
            if key.group is not group or key.id in _FOLDED:
                continue
            here = where in key.where
            shown = "1-6" if key.id == "pane_1" else _names(key.keys, key.display)
            text = _FOLDED_HELP.get(key.id, key.help)
            if key.later:
                text += f" Not available yet: {key.later}."
            elif not here:
                text += f" (on: {', '.join(sorted(key.where))})"
            for number, piece in enumerate(wrap(text, max(width - 16, 10))):
                lead = shown if number == 0 else ""
                role = "key" if here and not key.later else "dim"
                rows.append(
                    (Span(f"   {lead:<11} ", role), Span(piece, "" if here else "dim"))
                )
        rows.append(BLANK)
    return rows


_FOLDED = frozenset(f"pane_{number}" for number in range(2, 7))
_FOLDED_HELP = {"pane_1": "Show or hide a pane; the number stands in its title."}


def _names(keys: Sequence[str], display: str) -> str:
    return " ".join(printed(key) for key in keys[:2]) or display


def page_rows(path: Path, width: int) -> list[Line]:
    """A Markdown page as rows: headings, lists and paragraphs, nothing more."""
    rows: list[Line] = []
    for text in path.read_text("utf-8").splitlines():
        if text.startswith("#"):
            rows.append((Span(" " + visible(text.lstrip("# ")), "title"),))
            continue
        indent = "   " if text.startswith((" ", "-")) else " "
        for number, piece in enumerate(wrap(text, max(width - 6, 10))):
            lead = indent if number == 0 else indent + "  "
            rows.append((Span(lead), Span(piece.replace("`", ""))) if piece else BLANK)
    return rows


class HelpScreen(ConsoleScreen):
    """Help for the screen below it.

    Args:
        about: That screen.
    """

    WHERE: ClassVar[Where] = Where.HELP
    DEFAULT_CSS = "HelpScreen #help { height: 1fr; }"

    def __init__(self, about: Where) -> None:
        super().__init__()
        self._about = about

    def compose_body(self) -> Iterator[Widget]:
        """One pane."""
        pane = HelpPane(number=1, name="help", id="help")
        pane.where = self._about
        yield pane

    def show(self, snapshot: RunSnapshot) -> None:
        """Only the edges depend on the run."""
        super().show(snapshot)


def key_sheet() -> str:
    """All keys as Markdown, for `help/keys.md`."""
    parts = ["# Keys", ""]
    for group in Group:
        parts += [f"## {group.value}", "", "| key | what it does | where |"]
        parts.append("| --- | --- | --- |")
        for key in KEYS:
            if key.group is not group or key.id in _FOLDED:
                continue
            shown = "1-6" if key.id == "pane_1" else _names(key.keys, key.display)
            text = _FOLDED_HELP.get(key.id, key.help)
            if key.later:
                text += f" Not available yet: {key.later}."
            every = len(key.where) == len(Where)
            where = "everywhere" if every else ", ".join(sorted(key.where))
            parts.append(f"| `{shown}` | {text} | {where} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    (HELP_FOLDER / "keys.md").write_text(key_sheet(), "utf-8")
