"""Two rollouts side by side: what differs, and one sample token beside token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from relax_tui.lines import Line, Span
from relax_tui.panes.numbers import log_prob_text, number_text
from relax_tui.panes.pane import ListPane
from relax_tui.panes.tokens import TEXT_CELLS
from relax_tui.text import pad, visible

if TYPE_CHECKING:
    from relax_tui.checking.aligned import AlignedSample, AlignedSide
    from relax_tui.checking.difference_types import Difference, Divergence

COLUMN = "log_probs"
_NUMBER = 11


class ComparisonPane(ListPane):
    """What differs, one row each: tokens, columns, numbers, arguments.

    Attributes:
        found: None while it is being compared.
        state: What is going on, or why it failed.
    """

    found: Difference | None = None
    state = "comparing"
    _rows: Sequence[Line] = ()
    _rows_width = -1

    def show_found(self, found: Difference) -> None:
        """Shows a comparison."""
        self.found, self._rows_width = found, -1
        self.repaint()

    def count(self) -> int:
        """Rows there are."""
        return len(self._made(self.size.width - 1))

    def item(self, index: int, width: int) -> Line:
        """One row."""
        return self._made(width)[index]

    def _made(self, width: int) -> Sequence[Line]:
        if self.found is not None and width != self._rows_width:
            self._rows = list(difference_rows(self.found, width, self))
            self._rows_width = width
        return self._rows

    def empty(self) -> str:
        """What is going on."""
        return self.state

    def about(self) -> tuple[str, str]:
        """Which rollouts."""
        if self.found is None:
            return "", ""
        a, b = self.found.rollouts
        return f"A rollout {a}, B rollout {b}", self.position()


def difference_rows(found: Difference, width: int, pane: ListPane) -> Iterator[Line]:
    """The comparison as rows: what, A's value, B's value.

    Args:
        found: The comparison.
        width: Cells there are.
        pane: Whose look it takes.
    """
    glyphs = pane.look.glyphs
    name = max(18, min(36, width // 3))
    value = max((width - name - 2) // 2, 8)
    for mark, path, rollout in (
        ("A", found.a, found.rollouts[0]),
        ("B", found.b, found.rollouts[1]),
    ):
        told = Span(f" rollout {rollout}  {visible(path)}", "dim")
        yield (Span(f" {mark}", "title"), told)
    yield from _token_rows(found)
    for column in found.columns:
        share = f"{column.unequal:,} of {column.tokens:,} unequal"
        if not column.unequal:
            share = f"equal to the bit in {column.tokens:,} tokens"
        largest = number_text(column.max_abs, glyphs)
        tail = f"  max |A-B| {largest}" if column.unequal else ""
        first = f"  first at {_place(column.first)}" if column.first else ""
        role = "warn" if column.unequal else "good"
        head = Span(f" {pad(column.name, name - 1)} ", "label")
        yield (head, Span(share, role), Span(tail + first))
    pairs: list[tuple[str, str, str]] = [
        (f"--{key.replace('_', '-')}", one, two)
        for key, (one, two) in found.arguments.items()
    ]
    pairs += [
        (key, number_text(one, glyphs), number_text(two, glyphs))
        for key, (one, two) in found.numbers.items()
    ]
    for key, one, two in pairs:
        yield (
            Span(f" {pad(visible(key), name - 1)} ", "label"),
            Span(pad(visible(one), value), "number"),
            Span(" "),
            Span(pad(visible(two), value), "number"),
        )
    for note in found.notes:
        yield (Span(f" cannot read: {visible(note)}", "warn"),)
    if not found.differs:
        yield (Span(" no difference", "good"),)


def _token_rows(found: Difference) -> Iterator[Line]:
    if not found.paired and not found.only_a and not found.only_b:
        text = " samples: none in one of them; numbers and arguments were compared"
        yield (Span(text, "dim"),)
        return
    role = "good" if found.same_tokens == found.paired else "warn"
    yield (
        Span(f" {found.paired} samples in both, ", "label"),
        Span(f"{found.same_tokens} with equal tokens", role),
        Span(f"; {found.only_a} only in A, {found.only_b} only in B", "label"),
    )
    if found.first_tokens is not None:
        place = _place(found.first_tokens)
        yield (Span(" first different token ", "label"), Span(place, "warn"))
    if found.rewards_differ:
        text = f"{found.rewards_differ} of {found.paired}"
        yield (Span(" rewards differ in ", "label"), Span(text, "warn"))


def _place(place: Divergence) -> str:
    other = "" if place.sample == place.other else f" (B: s{place.other})"
    return f"s{place.sample}{other} t{place.position}"


class AlignedPane(ListPane):
    """One sample of A beside its partner in B, a row a position."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.samples: Sequence[AlignedSample] = ()
        self.chosen = 0
        self.state = ""

    def show_samples(self, samples: Sequence[AlignedSample]) -> None:
        """Takes the samples; the first one is shown where it first differs."""
        self.samples, self.chosen = samples, 0
        self.state = "no sample differs"
        self._to_first()

    def choose(self, step: int) -> bool:
        """Another sample; False at the ends."""
        wanted = self.chosen + step
        if not 0 <= wanted < len(self.samples):
            return False
        self.chosen = wanted
        self._to_first()
        return True

    def _to_first(self) -> None:
        self.matches, self.cursor, self.offset_y = (), 0, 0
        places = self._unequal()
        self._place(places[0] if places else 0)

    @property
    def sample(self) -> AlignedSample | None:
        """The one that is shown."""
        return self.samples[self.chosen] if self.samples else None

    def next_unequal(self, step: int) -> str:
        """To the next (1) or previous (-1) difference; '' or why not."""
        places = [
            p
            for p in self._unequal()
            if (p > self.cursor if step > 0 else p < self.cursor)
        ]
        if not places:
            return "this is the last difference this way"
        self._place(places[0] if step > 0 else places[-1])
        return ""

    def go_to_worst(self) -> str:
        """To the largest difference of log_probs before the tokens part."""
        sample = self.sample
        sizes = [(abs(d), -p) for p in range(self.count()) if (d := self._gap(p))]
        if sample is None or not sizes:
            return "no log_probs to compare before the tokens part"
        self._place(-max(sizes)[1])
        return ""

    def _unequal(self) -> list[int]:
        return [p for p in range(self.count()) if self._differs(p)]

    def _differs(self, place: int) -> bool:
        sample = self.sample
        if sample is None:
            return False
        one, two = sample.a.ids[place : place + 1], sample.b.ids[place : place + 1]
        return one != two or bool(self._gap(place))

    def _gap(self, place: int) -> float | None:
        """A - B of log_probs, as long as the tokens are the same."""
        sample = self.sample
        parted = sample.first if sample else None
        if sample is None or (parted is not None and sample.start + place >= parted):
            return None
        one, two = _value(sample.a, place), _value(sample.b, place)
        return None if one is None or two is None else one - two

    def count(self) -> int:
        """Positions of the longer side."""
        sample = self.sample
        return max(len(sample.a.ids), len(sample.b.ids)) if sample else 0

    def header(self, width: int) -> Line | None:
        """Column heads."""
        if self.sample is None:
            return None
        cells = _text_cells(width)
        heads = f"{'t':>6} {pad('A', cells)} {pad('B', cells)}  "
        numbers = "".join(pad(h, _NUMBER, ">") for h in self._heads(width))
        return (Span(heads + numbers, "label"),)

    def _heads(self, width: int) -> Sequence[str]:
        return ("lp A", "lp B", "A - B") if width >= 76 else ("A - B",)

    def item(self, index: int, width: int) -> Line:
        """One position."""
        sample = self.sample
        if sample is None:
            return ()
        cells = _text_cells(width)
        same = sample.a.ids[index : index + 1] == sample.b.ids[index : index + 1]
        role = "" if same else "warn"
        one, two, gap = (
            _value(sample.a, index),
            _value(sample.b, index),
            self._gap(index),
        )
        glyphs = self.look.glyphs
        numbers = [_number(value, glyphs.absent) for value in (one, two)]
        shown = "" if gap is None else number_text(gap, glyphs)
        if width < 76:
            numbers = []
        return (
            Span(f"{sample.start + index:>6} ", "dim"),
            Span(self._token(sample.a, index, cells), role),
            Span(" "),
            Span(self._token(sample.b, index, cells), role),
            Span("  " if same else f" {'!' if glyphs.rule.isascii() else '≠'}", "warn"),
            *(Span(pad(number, _NUMBER, ">"), "number") for number in numbers),
            Span(pad(shown, _NUMBER, ">"), "warn" if gap else "dim"),
        )

    def _token(self, side: AlignedSide, index: int, cells: int) -> str:
        if index >= len(side.ids):
            return pad(self.look.glyphs.absent, cells)
        text = f"'{side.texts[index]}'" if side.texts else str(side.ids[index])
        return pad(visible(text, ascii_only=self.look.ascii_only), cells)

    def item_text(self, index: int) -> str:
        """Tokens of both sides, and their ids."""
        sample = self.sample
        if sample is None:
            return ""
        words = []
        for side in (sample.a, sample.b):
            words += [*side.texts[index : index + 1]]
            words += map(str, side.ids[index : index + 1])
        return " ".join(words)

    def empty(self) -> str:
        """Why there is none."""
        return self.state

    def about(self) -> tuple[str, str]:
        """Which sample, and where it first differs."""
        sample = self.sample
        if sample is None:
            return "", ""
        other = "" if sample.sample == sample.other else f" (B: {sample.other})"
        parts = [f"sample {sample.sample}{other}"]
        parts.append(f"{self.chosen + 1} of {len(self.samples)} that differ")
        if sample.first is None:
            parts.append("equal tokens")
        else:
            parts.append(f"tokens part at t{sample.first}")
        return f" {self.look.glyphs.dot} ".join(parts), self.position()


def _value(side: AlignedSide, place: int) -> float | None:
    values = side.columns.get(COLUMN, ())
    return values[place] if place < len(values) else None


def _number(value: float | None, absent: str) -> str:
    return absent if value is None else log_prob_text(value, 6)


def _text_cells(width: int) -> int:
    return max(6, min(TEXT_CELLS + 4, (width - 3 * _NUMBER - 10) // 2))
