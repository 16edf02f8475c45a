"""The tokens of one sample: a table, one row a token, or running text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax_tui.lines import Line, Span
from relax_tui.panes.differences import (
    PAIRINGS,
    Counts,
    Pairing,
    counts,
    difference,
    heat,
    missing,
)
from relax_tui.panes.numbers import log_prob_text, number_text
from relax_tui.panes.pane import ListPane
from relax_tui.sources.base import SampleRow, SampleTokens
from relax_tui.text import pad, visible, width
from relax_tui.theme import Glyphs

COLUMNS = (
    ("rollout_log_probs", "rollout"),
    ("log_probs", "lp"),
    ("ref_log_probs", "ref"),
)
TEXT_CELLS = 16
NUMBER_CELLS = 11
NARROW_CELLS = 10
"""Of a log-prob where there is little room; -3.72e-05 and a space before it."""


class TokensPane(ListPane):
    """Tokens of the selected sample, with what is subtracted from what."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.row: SampleRow | None = None
        self.tokens: SampleTokens | None = None
        self.pairing = PAIRINGS[0]
        self.flow = False
        self.as_bytes = False
        self.why_empty = ""
        self._values: tuple[float, ...] | None = None
        self._counts: Counts | None = None
        self._ulps: tuple[int | None, ...] = ()
        self._flow_cache: tuple[int, list[Line], list[int]] = (0, [], [])

    def show_sample(self, row: SampleRow | None, tokens: SampleTokens | None) -> None:
        """Shows another sample, or more of this one."""
        other = row is None or self.row is None or row.index != self.row.index
        self.row, self.tokens = row, tokens
        if other:
            self.cursor = self.offset_y = 0
            self.matches = ()
        self._measure()

    def subtract(self, pairing: Pairing) -> None:
        """Chooses what is subtracted from what."""
        self.pairing = pairing
        self._measure()

    def toggle_flow(self) -> None:
        """Table or running text."""
        self.flow = not self.flow
        self._flow_cache = (0, [], [])
        self.offset_y = 0
        self.repaint()

    def toggle_bytes(self) -> None:
        """Text or bytes of each token."""
        self.as_bytes = not self.as_bytes
        self.repaint()

    def _measure(self) -> None:
        tokens = self.tokens
        self._values = difference(tokens, self.pairing) if tokens else None
        self._counts = None
        self._ulps = ()
        self._flow_cache = (0, [], [])
        if tokens is not None and self._values is not None:
            self._counts = counts(self._values, tokens.mask)
            self._ulps = ulps(tokens, self.pairing)
        self.repaint()

    @property
    def counts(self) -> Counts | None:
        """The difference in numbers."""
        return self._counts

    # Moving by what differs

    def next_unequal(self, step: int) -> str:
        """To the next (1) or previous (-1) differing token; '' or why not."""
        why = self._why_no_difference()
        if why:
            return why
        places = self._unequal()
        later = [
            p for p in places if (p > self.cursor if step > 0 else p < self.cursor)
        ]
        if not places:
            return f"{self.pairing.label}: no token differs"
        if not later:
            end = "last" if step > 0 else "first"
            return f"{self.pairing.label}: this is the {end} differing token"
        self._place(later[0] if step > 0 else later[-1])
        return ""

    def go_to_worst(self) -> str:
        """To the token that differs most; '' or why not."""
        why = self._why_no_difference()
        if why or self._counts is None or self._values is None:
            return why
        broken = [i for i, v in enumerate(self._values) if not math.isfinite(v)]
        worst = broken[0] if broken else self._counts.worst
        if worst is None:
            return f"{self.pairing.label}: no token differs"
        self._place(worst)
        return ""

    def _why_no_difference(self) -> str:
        if self.tokens is None:
            return self.empty()
        return missing(self.tokens, self.pairing)

    def _unequal(self) -> list[int]:
        mask = self.tokens.mask if self.tokens else None
        return [
            i
            for i, value in enumerate(self._values or ())
            if value != 0 and (mask is None or mask[i])
        ]

    # Drawing

    def count(self) -> int:
        """Tokens of the response."""
        return len(self.tokens.ids) if self.tokens else 0

    def empty(self) -> str:
        """Why there are no tokens."""
        if self.row is None:
            return self.why_empty or "no sample is selected"
        if self.tokens is None:
            return (
                "not carried: this record keeps the tokens of some samples only"
                " (--record-samples)"
            )
        return "the response is empty"

    def about(self) -> tuple[str, str]:
        """Counts: tokens, masked, unequal, non-finite, the worst and its place."""
        found = self._counts
        label = self.pairing.label
        if self.tokens is None:
            return "", ""
        if found is None:
            return f"{label} {self.look.glyphs.absent}", self.position()
        parts = [f"{found.tokens} tokens"]
        if found.masked:
            parts.append(f"{found.masked} masked")
        parts.append(f"{label}: {found.unequal} unequal")
        if found.nonfinite:
            parts.append(f"{found.nonfinite} NON-FINITE")
        if found.worst is not None:
            size = number_text(found.worst_abs, self.look.glyphs)
            parts.append(f"max {size} at t{found.worst}")
        return f" {self.look.glyphs.dot} ".join(parts), self.position()

    def header(self, width: int) -> Line | None:
        """Column heads, and why a column is not there."""
        if self.flow or self.tokens is None:
            return None
        names = [pad(label, NUMBER_CELLS, ">") for _, label in COLUMNS]
        label = self.pairing.label.replace("rollout", "roll")
        heads = f"{'t':>5} {pad('token', TEXT_CELLS)} m" + "".join(names)
        tail = f"{pad(label, NUMBER_CELLS, '>')}{pad('ulp', 10, '>')}"
        if width < 76:
            heads = f"{'t':>5} {pad('token', TEXT_CELLS)} m"
            tail = f"{pad('lp', NARROW_CELLS, '>')}{pad(label, NUMBER_CELLS, '>')}"
        return (Span(heads + tail, "label"),)

    def item(self, index: int, width: int) -> Line:
        """One token."""
        tokens = self.tokens
        if tokens is None:
            return ()
        masked = tokens.mask is not None and not tokens.mask[index]
        role = "masked" if masked else ""
        mask = "?" if tokens.mask is None else str(tokens.mask[index])
        value = self._values[index] if self._values is not None else None
        text = self._token_text(index, TEXT_CELLS)
        special = index < len(tokens.special) and tokens.special[index]
        spans = [
            Span(f"{index:>5} ", "dim"),
            Span(text, "special" if special else role),
            Span(f" {mask}", "masked" if masked else "dim"),
        ]
        glyphs = self.look.glyphs
        narrow = width < 76
        for name, _ in COLUMNS:
            if narrow and name != "log_probs":
                continue
            column = tokens.columns.get(name)
            cells = NARROW_CELLS if narrow else NUMBER_CELLS
            shown = glyphs.absent if column is None else log_prob_text(column[index], 5)
            spans.append(
                Span(pad(shown, cells, ">"), "dim" if column is None else role)
            )
        mark = role if masked else "dim" if value is None else heat(value)
        spans.append(Span(pad(_signed(value, glyphs), NUMBER_CELLS, ">"), mark))
        if not narrow:
            ulp = self._ulps[index] if index < len(self._ulps) else None
            spans.append(Span(pad(_ulp(ulp, glyphs), 10, ">"), mark))
        return tuple(spans)

    def _token_text(self, index: int, cells: int) -> str:
        tokens = self.tokens
        if tokens is None:
            return ""
        raw = tokens.raw[index] if index < len(tokens.raw) else None
        if self.as_bytes and raw is not None:
            return pad(raw.hex(" "), cells)
        text = visible(tokens.texts[index], ascii_only=self.look.ascii_only)
        return pad(f"'{text}'", cells)

    def item_text(self, index: int) -> str:
        """Tokens are searched by their text and id."""
        tokens = self.tokens
        return f"{tokens.texts[index]} {tokens.ids[index]}" if tokens else ""

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Table or running text, and the reasons for absent columns."""
        notes = self._notes()[: max(height - 4, 0)]
        if not self.flow or not self.count():
            rows = list(super().body(width, height - len(notes)))
            return [*rows, *[()] * (height - len(notes) - len(rows)), *notes]
        return self._flow(width, height)

    def _notes(self) -> list[Line]:
        tokens = self.tokens
        if tokens is None:
            return []
        return [
            (Span(f"  {name} is absent: {visible(tokens.absent[name])}", "dim"),)
            for name, _ in COLUMNS
            if name in tokens.absent
        ]

    def _flow(self, width: int, height: int) -> Sequence[Line]:
        if self._flow_cache[0] != width:
            rows, starts = flow_rows(self, width)
            self._flow_cache = (width, rows, starts)
        _, rows, starts = self._flow_cache
        here = next(
            (n for n in range(len(starts) - 1, -1, -1) if starts[n] <= self.cursor), 0
        )
        per = height // 2
        first = max(0, min(here - per // 2, len(starts) - per))
        shown = rows[first * 2 : (first + per) * 2]
        mark = (here - first) * 2
        return [
            (Span(self.look.glyphs.cursor if n == mark else " ", "focus"), *row)
            for n, row in enumerate(shown)
        ]

    @property
    def values(self) -> tuple[float, ...] | None:
        """The difference a token."""
        return self._values


def flow_rows(pane: TokensPane, room: int) -> tuple[list[Line], list[int]]:
    """Running text with the difference strip under each line.

    Args:
        pane: Whose tokens.
        room: Cells of a row.

    Returns:
        Pairs of rows, text and strip; and the first token of each pair.
    """
    tokens = pane.tokens
    rows: list[Line] = []
    starts: list[int] = []
    if tokens is None:
        return rows, starts
    text: list[Span] = []
    under: list[Span] = []
    used = 0
    for index, raw in enumerate(tokens.texts):
        piece = visible(raw, ascii_only=pane.look.ascii_only)
        cells = width(piece)
        if used and used + cells > room - 2:
            rows += [tuple(text), tuple(under)]
            text, under, used = [], [], 0
        if not text:
            starts.append(index)
        masked = tokens.mask is not None and not tokens.mask[index]
        text.append(Span(piece, "masked" if masked else ""))
        value = pane.values[index] if pane.values is not None else None
        under.append(_under(value, cells, masked=masked, glyphs=pane.look.glyphs))
        used += cells
    rows += [tuple(text), tuple(under)]
    return rows, starts


def _under(value: float | None, cells: int, *, masked: bool, glyphs: Glyphs) -> Span:
    if masked or value is None:
        return Span(" " * cells)
    if not math.isfinite(value):
        return Span("x" * cells, "bad")
    if value == 0:
        return Span(glyphs.dot + " " * (cells - 1) if cells else "", "dim")
    sign = "+" if value > 0 else glyphs.minus
    steps = {"heat1": 2, "heat2": 4, "heat3": 6, "heat4": 8}
    bar = glyphs.bars[steps[heat(value)]]
    # A token of one cell has no room for the sign: its size is what counts.
    return Span(bar * cells if cells < 2 else sign + bar * (cells - 1), heat(value))


def ulps(tokens: SampleTokens, pairing: Pairing) -> tuple[int | None, ...]:
    """Distance in float32 steps a token; None where either side is not finite."""
    # numpy came with Arrow, which read these tokens; the start does without both.
    import numpy as np  # noqa: PLC0415

    from relax.measure.difference import ulp_distance  # noqa: PLC0415

    left = np.array(tokens.columns[pairing.left], np.float32)
    right = np.array(tokens.columns[pairing.right], np.float32)
    finite = np.isfinite(left) & np.isfinite(right)
    zero = np.float32(0)
    steps = ulp_distance(np.where(finite, left, zero), np.where(finite, right, zero))
    return tuple(
        int(step) if ok else None for step, ok in zip(steps, finite, strict=True)
    )


def _signed(value: float | None, glyphs: Glyphs) -> str:
    """A difference with its sign and its order of magnitude in fixed places."""
    if value is None:
        return glyphs.absent
    if not math.isfinite(value):
        return str(value)
    return f"{value:+.1e}" if value else "0"


def _ulp(ulp: int | None, glyphs: Glyphs) -> str:
    if ulp is None:
        return glyphs.absent
    return f"{ulp:,}" if ulp < 1_000_000 else f"{ulp:.1e}"
