"""A Line-API widget that repaints only the cells that changed.

Textual paints whatever regions a widget marks, without comparing cells; over SSH the
bytes are what a person feels. So this widget keeps the rows that are on the screen,
compares new ones with them, and marks the changed cells of the changed rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from relax_tui.lines import BLANK, Line, fit
from relax_tui.text import visible, width
from relax_tui.theme import Look


class LineView(Widget):
    """Rows of text; what they are is decided by `rows`."""

    DEFAULT_CSS = """
    LineView { height: 1; width: 1fr; }
    """
    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self.look = Look()
        self._painted: list[Line] = []
        self._painted_size = Size(0, 0)
        self._strips: dict[tuple[Line, int], Strip] = {}

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """What to draw, at most ``height`` lines of at most ``width`` cells."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Asks `rows` again and marks what changed."""
        cells, height = self.size
        if not cells or not height:
            return
        if self._painted_size != self.size:
            self._paint()
            self.refresh()
            return
        before, rows = self._painted, self._paint()
        regions = [
            Region(start, y, end - start, 1)
            for y, (old, new) in enumerate(zip(before, rows, strict=True))
            if old != new
            for start, end in (changed_cells(old, new, cells),)
            if end > start
        ]
        if regions:
            self.refresh(*regions)

    def redraw(self) -> None:
        """Draws everything again, e.g. in another look."""
        self._painted_size = Size(0, 0)
        self._strips.clear()
        self.repaint()

    def _paint(self) -> list[Line]:
        """Makes the rows for the size that the widget has now."""
        cells, height = self.size
        ellipsis = self.look.glyphs.ellipsis
        made = self.rows(cells, height)[:height]
        rows = [fit(row, cells, ellipsis=ellipsis) for row in made]
        rows += [BLANK] * (height - len(rows))
        self._painted, self._painted_size = rows, self.size
        return rows

    def on_mount(self) -> None:
        """Takes the terminal's look over from the app."""
        look = getattr(self.app, "look", None)
        if isinstance(look, Look):
            self.look = look

    def on_resize(self) -> None:
        """Draws for the new size."""
        self.repaint()

    def render_line(self, y: int) -> Strip:
        """The row at ``y`` as Textual wants it."""
        if self._painted_size != self.size:
            # Textual may draw a new size before it says that the size is new.
            self._paint()
        cells = self.size.width
        row = self._painted[y] if y < len(self._painted) else BLANK
        strip = self._strips.get((row, cells))
        if strip is None:
            strip = self._strip(row, cells)
            if len(self._strips) > 512:
                self._strips.clear()
            self._strips[row, cells] = strip
        return strip

    def _strip(self, row: Line, cells: int) -> Strip:
        ascii_only = self.look.ascii_only
        # The boundary once more: whatever a pane forgot to clean is cleaned here.
        segments = [
            Segment(
                visible(span.text, ascii_only=ascii_only), self.look.style(span.role)
            )
            for span in row
        ]
        return Strip(segments).simplify().adjust_cell_length(cells)


def changed_cells(old: Line, new: Line, cells: int) -> tuple[int, int]:
    """First cell that differs between two rows, and the cell behind the last one.

    Args:
        old: The row that is on the screen.
        new: The row that replaces it.
        cells: Width of the screen.

    Returns:
        Start and end, never inside a wide character; ``(0, 0)`` when nothing differs.
    """
    before, after = _cells(old, cells), _cells(new, cells)
    differing = [x for x in range(cells) if before[x] != after[x]]
    if not differing:
        return 0, 0
    start, end = differing[0], differing[-1] + 1
    while start > 0 and _WIDE in (before[start], after[start]):
        start -= 1
    while end < cells and _WIDE in (before[end], after[end]):
        end += 1
    return start, end


_WIDE = ("", "")


def _cells(row: Line, cells: int) -> list[tuple[str, str]]:
    """One (character, role) a cell; the second cell of a wide character is empty."""
    found: list[tuple[str, str]] = []
    for span in row:
        if span.text.isascii():
            found.extend((char, span.role) for char in span.text)
            continue
        for char in span.text:
            size = width(char)
            if size == 0 and found:
                last = found[-1]
                found[-1] = (last[0] + char, last[1])
            elif size:
                found.append((char, span.role))
                found.extend([_WIDE] * (size - 1))
    del found[cells:]
    found.extend([(" ", "")] * (cells - len(found)))
    return found
