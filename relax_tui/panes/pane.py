"""Panes: titled regions of a screen, and those with a cursor."""

from __future__ import annotations

from collections.abc import Sequence

from relax_tui.lines import Line, Span, beside, fit, line_width
from relax_tui.panes.choosing import text_matcher
from relax_tui.sources.base import RunSnapshot
from relax_tui.theme import Glyphs
from relax_tui.widgets.line_view import LineView


def title_rule(
    left: str, right: str, width: int, *, glyphs: Glyphs, focused: bool = False
) -> Line:
    """A region's title row: what it shows, and on the right how old it is.

    Focus is a mark, a heavier rule and a colour, so it is seen without colours too.
    """
    rule = glyphs.heavy if focused else glyphs.rule
    mark = f"{glyphs.cursor} " if focused else f"{rule} "
    role = "focus" if focused else "title"
    head: Line = (
        Span(mark, "focus" if focused else "rule"),
        Span(left, role),
        Span(" "),
    )
    tail: Line = (Span(f" {right} ", "dim"), Span(rule, "rule")) if right else ()
    room = width - line_width(head) - line_width(tail)
    if room < 1:
        return fit(head, width)
    return (*head, Span(rule * room, "rule"), *tail)


class Pane(LineView):
    """A titled region that shows a part of the snapshot.

    Args:
        number: Key that shows and hides it; 0 for none.
        name: What it shows, one or two words.
    """

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(id=id)
        self.number = number
        self.pane_name = name
        self.focused = False
        self.titled = True
        self.snapshot = RunSnapshot()

    def show(self, snapshot: RunSnapshot) -> None:
        """Draws another snapshot; only what changed is sent."""
        self.snapshot = snapshot
        self.repaint()

    def focus_pane(self, *, focused: bool) -> None:
        """Marks the pane as the one that keys go to."""
        self.focused = focused
        self.repaint()

    def about(self) -> tuple[str, str]:
        """Title beyond the name, and how old the content is."""
        return "", ""

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The rows below the title."""
        raise NotImplementedError

    def text_lines(self, width: int) -> Sequence[Line]:
        """Everything the pane holds, for copying; more than fits on the screen."""
        return self.body(width, 10_000)

    def rows(self, width: int, height: int) -> Sequence[Line]:
        """Title and body."""
        if not self.titled or height < 2:
            return self.body(width, height)
        more, age = self.about()
        number = f"{self.number} " if self.number else ""
        name = f"{number}{self.pane_name}"
        title = f"{name} {self.look.glyphs.dot} {more}" if more else name
        rule = title_rule(
            title, age, width, glyphs=self.look.glyphs, focused=self.focused
        )
        return [rule, *self.body(width, height - 1)]

    def move(self, delta: int) -> bool:
        """Moves the cursor or scrolls; False when there is nothing to move in."""
        return False

    def move_to(self, place: int) -> bool:
        """To a place, counted from the end when negative."""
        return False

    @property
    def page(self) -> int:
        """Rows of a page."""
        return max(self.size.height - 2, 1)


class ScrollPane(Pane):
    """A pane whose content may be longer than the screen."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.offset_y = 0

    def content(self, width: int) -> Sequence[Line]:
        """All rows."""
        raise NotImplementedError

    def text_lines(self, width: int) -> Sequence[Line]:
        """All rows, for copying."""
        return self.content(width)

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The rows that are in view."""
        content = self.content(width)
        self.offset_y = max(0, min(self.offset_y, len(content) - height))
        return content[self.offset_y : self.offset_y + height]

    def move(self, delta: int) -> bool:
        """Scrolls."""
        self.offset_y = max(0, self.offset_y + delta)
        self.repaint()
        return True

    def move_to(self, place: int) -> bool:
        """Scrolls to the beginning or the end."""
        self.offset_y = 0 if place >= 0 else 1_000_000_000
        self.repaint()
        return True


class ListPane(Pane):
    """A list with a cursor; rows are made only for what is in view."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.cursor = 0
        self.offset_y = 0
        self.matches: tuple[int, ...] = ()

    def count(self) -> int:
        """Items there are."""
        raise NotImplementedError

    def header(self, width: int) -> Line | None:
        """Column heads; None for a list without."""
        return None

    def item(self, index: int, width: int) -> Line:
        """The row of an item, without its cursor mark."""
        raise NotImplementedError

    def item_text(self, index: int) -> str:
        """What a search looks at."""
        return "".join(span.text for span in self.item(index, 400))

    def empty(self) -> str:
        """What an empty list says."""
        return "nothing yet"

    def position(self) -> str:
        """Where the cursor is, e.g. ``3 of 64``."""
        count = self.count()
        return f"{self.cursor + 1} of {count}" if count else ""

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Column heads and the items in view."""
        count = self.count()
        head = self.header(width - 1)
        rows: list[Line] = []
        if head is not None and height > 2:
            rows.append((Span(" "), *head))
            height -= 1
        if not count:
            return [*rows, (Span(f" {self.empty()}", "dim"),)]
        self.cursor = max(0, min(self.cursor, count - 1))
        self._keep_in_view(height, count)
        last = min(self.offset_y + height, count)
        rows.extend(self._row(i, width) for i in range(self.offset_y, last))
        return rows

    def text_lines(self, width: int) -> Sequence[Line]:
        """Column heads and all items."""
        head = self.header(width)
        rows = [self.item(i, width) for i in range(self.count())]
        return rows if head is None else [head, *rows]

    def _keep_in_view(self, height: int, count: int) -> None:
        low = self.cursor - height + 1
        self.offset_y = max(low, min(self.offset_y, self.cursor))
        self.offset_y = max(0, min(self.offset_y, count - height))

    def _row(self, index: int, width: int) -> Line:
        content = self.item(index, width - 1)
        if index != self.cursor:
            match = index in self.matches
            return (Span("*" if match else " ", "match" if match else ""), *content)
        mark = Span(self.look.glyphs.cursor, "focus" if self.focused else "dim")
        if not self.focused:
            return (mark, *content)
        shown = fit(content, width - 1, ellipsis=self.look.glyphs.ellipsis)
        return (mark, *beside(_selected(shown), (), width - 1))

    def move(self, delta: int) -> bool:
        """Moves the cursor."""
        return self._place(self.cursor + delta)

    def move_to(self, place: int) -> bool:
        """To an item, counted from the end when negative."""
        return self._place(place if place >= 0 else self.count() + place)

    def _place(self, index: int) -> bool:
        before = self.cursor
        self.cursor = max(0, min(index, self.count() - 1))
        self.repaint()
        return self.cursor != before

    def search(self, text: str) -> int:
        """Marks the items that hold a text or fit an expression; returns how many."""
        matches = text_matcher(text)
        self.matches = (
            tuple(i for i in range(self.count()) if matches(self.item_text(i)))
            if text
            else ()
        )
        self.repaint()
        return len(self.matches)

    def next_match(self, step: int) -> bool:
        """To the next (1) or the previous (-1) match, around the ends."""
        if not self.matches:
            return False
        if step > 0:
            later = [i for i in self.matches if i > self.cursor]
            self._place(later[0] if later else self.matches[0])
        else:
            before = [i for i in self.matches if i < self.cursor]
            self._place(before[-1] if before else self.matches[-1])
        return True


def _selected(content: Line) -> Line:
    """A row under the cursor: alarms keep their role, the rest is marked."""
    return tuple(
        span if span.role in ("bad", "warn") else Span(span.text, "selected")
        for span in content
    )
