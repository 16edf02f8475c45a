"""One sample in full: its conversation and where its log-probs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax_tui.lines import Line, Span
from relax_tui.panes.differences import PAIRINGS, Pairing, counts, difference, strip
from relax_tui.panes.numbers import (
    length_text,
    log_prob_text,
    number_text,
    reward_text,
)
from relax_tui.panes.pane import ScrollPane
from relax_tui.sources.base import RolloutView, SampleRow, SampleTokens
from relax_tui.text import visible, wrap
from relax_tui.theme import Glyphs, Look

LEAD = 11
SHOWN_CHARACTERS = 40_000


def conversation(row: SampleRow, width: int, look: Look) -> list[Line]:
    """Prompt and response, wrapped; the roles stand in a column of their own."""
    room = max(width - LEAD, 8)
    rows: list[Line] = []
    for head, text, role in (
        ("prompt", row.prompt, "dim"),
        ("response", row.response, ""),
        ("label", row.label, "dim"),
        ("failure", row.failure, "bad"),
    ):
        if not text and head != "response":
            continue
        if head == "prompt" and width < 100:
            text = text.strip()
        shown = wrap(text[:SHOWN_CHARACTERS], room, ascii_only=look.ascii_only)
        while len(shown) > 1 and not shown[-1]:
            shown.pop()
        for number, piece in enumerate(shown):
            lead = f" {head if number == 0 else '':<{LEAD - 1}}"
            rows.append((Span(lead, "label"), Span(piece, role)))
    return rows


def difference_rows(
    row: SampleRow, tokens: SampleTokens | None, width: int, glyphs: Glyphs
) -> list[Line]:
    """The two difference strips, each with its worst token."""
    if tokens is None:
        text = " tokens are not carried in this record"
        return [(Span(text, "dim"),)]
    rows = [_strip_row(tokens, pairing, width, glyphs) for pairing in PAIRINGS[:2]]
    worst = _worst_row(tokens, glyphs)
    return [*rows, worst] if worst else rows


def _strip_row(
    tokens: SampleTokens, pairing: Pairing, width: int, glyphs: Glyphs
) -> Line:
    head = Span(f" {pairing.label.replace('rollout', 'roll'):<{LEAD - 1}}", "label")
    values = difference(tokens, pairing)
    if values is None:
        name = pairing.left if pairing.left not in tokens.columns else pairing.right
        reason = tokens.absent.get(name, "not recorded")
        return (head, Span(f"{name} {glyphs.absent} {visible(reason)}", "dim"))
    found = counts(values, tokens.mask)
    tail = f"  {found.unequal}/{found.tokens} unequal"
    if found.nonfinite:
        tail += f", {found.nonfinite} NON-FINITE"
    role = "bad" if found.nonfinite else "dim"
    room = max(width - LEAD - len(tail) - 1, 4)
    return (head, *strip(values, tokens.mask, room, glyphs), Span(tail, role))


def _worst_row(tokens: SampleTokens, glyphs: Glyphs) -> Line:
    for pairing in PAIRINGS[:2]:
        values = difference(tokens, pairing)
        found = counts(values, tokens.mask) if values is not None else None
        if found is None or found.worst is None:
            continue
        place = found.worst
        parts = [
            f' worst t{place} "{visible(tokens.texts[place])}"',
            f"{pairing.label} {number_text(values[place], glyphs)}",  # type: ignore[index]
        ]
        # As many places as it takes to see the difference in the numbers.
        size = abs(values[place]) if values is not None else 0.0
        digits = min(max(4, 1 - math.floor(math.log10(size or 1.0))), 8)
        short = (("log_probs", "lp"), ("ref_log_probs", "ref"),
                 ("rollout_log_probs", "rollout"))  # fmt: skip
        for name, label in short:
            if name in tokens.columns:
                value = tokens.columns[name][place]
                parts.append(f"{label} {log_prob_text(value, digits)}")
        return (Span("  ".join(parts), "heat2"),)
    return ()


def sample_title(row: SampleRow, glyphs: Glyphs) -> str:
    """``12 · group 1 · reward 0.00 · 64 tokens · truncated``."""
    parts = [str(row.index)]
    if row.group is not None:
        parts.append(f"group {row.group}")
    reward = reward_text(row.reward, glyphs)
    length = length_text(row.length, glyphs)
    parts += [f"reward {reward}", f"{length} tokens", visible(row.status)]
    if row.masked:
        parts.append(f"{row.masked} masked")
    parts += [flag for flag in row.flags if flag not in ("TRUNC", "ABORT")]
    return f" {glyphs.dot} ".join(parts)


class SamplePane(ScrollPane):
    """The sample under the cursor of the responses."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self._row: SampleRow | None = None
        self._view: RolloutView | None = None
        self._tokens: SampleTokens | None = None

    def show_sample(self, view: RolloutView | None, row: SampleRow | None) -> None:
        """Shows another sample, or the same one with more of its columns."""
        same = (
            self._row is not None
            and row is not None
            and self._row.index == row.index
            and self._view is not None
            and view is not None
            and self._view.rollout_id == view.rollout_id
        )
        if not same:
            self.offset_y = 0
        self._row, self._view = row, view
        store = view.tokens if view is not None else None
        self._tokens = store.sample(row.row) if store and row is not None else None
        self.repaint()

    def about(self) -> tuple[str, str]:
        """Which sample, and on which weights it was made."""
        if self._row is None:
            return "", ""
        versions = ", ".join(map(visible, self._row.weight_versions))
        age = f"weights {versions}" if versions else ""
        return sample_title(self._row, self.look.glyphs), age

    def content(self, width: int) -> Sequence[Line]:
        """The conversation."""
        if self._row is None:
            return [(Span(" no sample is selected", "dim"),)]
        return conversation(self._row, width, self.look)

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Conversation above, differences always in view below."""
        if self._row is None or height < 4:
            return super().body(width, height)
        below = difference_rows(self._row, self._tokens, width, self.look.glyphs)
        if height < 7:
            below = below[:1] + below[2:]
        room = height - len(below)
        above = list(super().body(width, room))
        blank: list[Line] = [()] * (room - len(above))
        return [*above, *blank, *below]
