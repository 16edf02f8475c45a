"""The samples of a rollout, worst first, also while it is still generating."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relax_tui.lines import Line, Span
from relax_tui.panes.choosing import ALL, Choice
from relax_tui.panes.numbers import length_text, number_text, reward_text
from relax_tui.panes.pane import ListPane
from relax_tui.panes.verdicts import UNHEALTHY
from relax_tui.sources.base import Liveness, RolloutView, RunSnapshot, SampleRow
from relax_tui.text import pad, visible
from relax_tui.theme import Glyphs

_FLAG_ORDER = ("FAIL", "NONF", "GARB", "LOOP", "EMPTY", "ABORT", "TRUNC")
BAD_FLAGS = frozenset(_FLAG_ORDER[:5])
PREVIEW = 400


def worst_first(
    rows: Sequence[SampleRow], pointed: Sequence[int] = ()
) -> list[SampleRow]:
    """Samples in the order in which a person should look at them.

    Args:
        rows: The samples.
        pointed: Indexes of those that checks point at, which come first.
    """
    first = {index: place for place, index in enumerate(pointed)}
    return sorted(
        rows, key=lambda row: (first.get(row.index, len(first)), _badness(row))
    )


def pointed_at(snapshot: RunSnapshot) -> tuple[int, ...]:
    """Samples of the viewed rollout that fail a check, in the order to look at them.

    Those that a verdict names come first; after them, all that differ in what the
    check compares, the largest difference first.
    """
    view = snapshot.viewed
    if view is None:
        return ()
    unhealthy = [
        line.verdict
        for line in snapshot.verdicts
        if str(line.verdict.status) in UNHEALTHY
        and line.verdict.where.rollout_id == view.rollout_id
    ]
    found = [
        place.sample_index
        for verdict in unhealthy
        for place in (verdict.where, *(e.where for e in verdict.evidence))
        if place is not None and place.rollout_id == view.rollout_id
    ]
    for verdict in unhealthy:
        size = _COMPARED.get(verdict.rule)
        if size is not None:
            found += [row.index for row in sorted(view.rows, key=size) if size(row)]
    return tuple(dict.fromkeys(index for index in found if index is not None))


def _by_size(value: float | None) -> float:
    """Sorts the largest first; what is not finite before, what is not there last."""
    if value is None:
        return 0.0
    return -abs(value) if math.isfinite(value) else -math.inf


_COMPARED: Final[Mapping[str, Callable[[SampleRow], float]]] = {
    "log_probs_equal_ref": lambda row: _by_size(row.ref_max_abs),
    "first_step_kl": lambda row: _by_size(row.ref_max_abs),
    "log_probs_vs_rollout": lambda row: _by_size(row.rollout_max_abs),
}
"""What a rule compares, of one sample."""


def _badness(row: SampleRow) -> tuple[int, float, float, int]:
    flag = _FLAG_ORDER.index(row.flags[0]) if row.flags else len(_FLAG_ORDER)
    reward = float("inf") if row.reward is None else row.reward
    difference = -1.0 if row.rollout_max_abs is None else row.rollout_max_abs
    return flag, reward, -difference, row.index


def response_header(width: int, *, index_cells: int = 4) -> Line:
    """Column heads, of the same widths as `response_row`."""
    cells = [pad("#", index_cells, ">"), pad("grp", 5, ">"), pad("reward", 7, ">"),
             pad("len", 5, ">")]  # fmt: skip
    if width >= 96:
        cells += [" " + pad("status", 9), pad("|lp-ref| max", 13, ">"),
                  pad("|lp-roll| max", 14, ">"), " " + pad("flags", 6)]  # fmt: skip
    elif width >= 56:
        cells += [pad("lp-ref", 8, ">"), pad("lp-roll", 9, ">"), " " + pad("flag", 5)]
    else:
        cells += [" " + pad("flag", 5)]
    return (Span("".join(cells), "label"), Span(" response", "label"))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How the rows of one rollout are drawn.

    Attributes:
        scored: Whether the log-prob stage is recorded; "not yet" is not "absent".
        untrained: Whether lp - ref is due to be 0 here, so that it is marked when not.
        index_cells: Cells of the sample index.
    """

    scored: bool = True
    untrained: bool = False
    index_cells: int = 4


def columns_of(snapshot: RunSnapshot) -> Columns:
    """How the rows of the viewed rollout are drawn."""
    view = snapshot.viewed
    if view is None:
        return Columns()
    largest = max((row.index for row in view.rows), default=0)
    return Columns(
        scored="logprobs" in view.stages,
        untrained=view.rollout_id == snapshot.first_rollout,
        index_cells=max(4, len(str(largest)) + 1),
    )


def response_row(
    row: SampleRow,
    width: int,
    glyphs: Glyphs,
    *,
    columns: Columns,
    preview: int | None = PREVIEW,
) -> Line:
    """One sample: its scalars in columns, then the beginning of its response.

    Args:
        row: The sample.
        width: Cells there are.
        glyphs: Of the terminal.
        columns: How the rows of this rollout are drawn.
        preview: Characters of the response; None for all.
    """
    scored = columns.scored
    bad = bool(BAD_FLAGS.intersection(row.flags))
    group = glyphs.absent if row.group is None else str(row.group)
    flag = row.flags[0] if row.flags else ""
    spans = [
        Span(pad(str(row.index), columns.index_cells, ">")),
        Span(pad(group, 5, ">"), "dim"),
        Span(pad(reward_text(row.reward, glyphs), 7, ">"), "number"),
        Span(pad(length_text(row.length, glyphs), 5, ">")),
    ]
    later = glyphs.dot
    reference = number_text(row.ref_max_abs, glyphs) if scored else later
    rollout = number_text(row.rollout_max_abs, glyphs) if scored else later
    flag_role = "bad" if bad else "warn"
    if width >= 96:
        spans += [
            Span(" " + pad(visible(row.status), 9), "dim"),
            Span(pad(reference, 13, ">"), _reference_role(row.ref_max_abs, columns)),
            Span(pad(rollout, 14, ">"), _heat(row.rollout_max_abs)),
            Span(" " + pad(flag, 6), flag_role),
        ]
    elif width >= 56:
        spans += [
            Span(pad(reference, 8, ">"), _reference_role(row.ref_max_abs, columns)),
            Span(pad(rollout, 9, ">"), _heat(row.rollout_max_abs)),
            Span(" " + pad(flag, 5), flag_role),
        ]
    else:
        spans.append(Span(" " + pad(flag, 5), flag_role))
    spans.append(Span(" " + visible((row.failure or row.response)[:preview])))
    return tuple(spans)


def _reference_role(difference: float | None, columns: Columns) -> str:
    """Lp - ref grows by training; before any it is due to be 0."""
    if difference is None or difference == 0:
        return "dim"
    return "heat4" if columns.untrained or difference != difference else ""


def _heat(difference: float | None) -> str:
    """Role of a log-prob difference, by the size that healthy engines show."""
    if difference is None or difference == 0:
        return "dim"
    if difference != difference or difference == float("inf"):
        return "bad"
    return "" if difference < 1e-2 else "heat2" if difference < 0.1 else "heat4"


class ResponsesPane(ListPane):
    """Samples of the viewed rollout."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.order: list[SampleRow] = []
        self._selected: int | None = None
        self._chosen = False
        self._pointed: tuple[int, ...] = ()
        self._grows = True
        self._columns = Columns()
        self.choice = ALL

    @property
    def view_shown(self) -> RolloutView | None:
        """The rollout that is looked at."""
        return self.snapshot.viewed

    @property
    def selected(self) -> SampleRow | None:
        """The sample under the cursor."""
        return self.order[self.cursor] if self.cursor < len(self.order) else None

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes new rows in; the cursor stays on its sample."""
        before, after = self.snapshot.viewed, snapshot.viewed
        pointed = pointed_at(snapshot)
        # A rollout whose samples have all come is waiting, not growing.
        grows = snapshot.now.liveness is not Liveness.PAUSED
        if (after, pointed, grows) != (before, self._pointed, self._grows):
            self._pointed, self._grows = pointed, grows
            self._take(before, after)
            self._columns = columns_of(snapshot)
        super().show(snapshot)

    def _take(self, before: RolloutView | None, after: RolloutView | None) -> None:
        rows = after.rows if after else ()
        finished = after is not None and (after.complete or not self._grows)
        ordered = finished or bool(self._pointed)
        arrived = worst_first(rows, self._pointed) if ordered else list(rows)
        self.order = self.choice.arrange(arrived, self._pointed)
        other = (
            before is None
            or after is None
            or (
                (before.attempt, before.rollout_id) != (after.attempt, after.rollout_id)
            )
        )
        if other:
            self._chosen = False
            self.matches = ()
        if self._chosen:
            places = {row.index: place for place, row in enumerate(self.order)}
            self.cursor = places.get(self._selected, self.cursor)  # type: ignore[arg-type]
        else:
            # Worst first when complete; the newest one while they still arrive.
            self.cursor = 0 if ordered else max(len(self.order) - 1, 0)

    def choose(self, choice: Choice) -> None:
        """Shows other samples, or in another order."""
        self.choice = choice
        self._take(self.snapshot.viewed, self.snapshot.viewed)
        self._chosen = self._chosen and self.selected is not None
        self.repaint()

    def _place(self, index: int) -> bool:
        moved = super()._place(index)
        self._chosen = True
        self._selected = self.selected.index if self.selected else None
        return moved

    @property
    def chosen(self) -> bool:
        """Whether a person put the cursor where it is."""
        return self._chosen

    def select(self, sample_index: int) -> bool:
        """Puts the cursor on a sample; False when it is not here."""
        for place, row in enumerate(self.order):
            if row.index == sample_index:
                self._place(place)
                return True
        return False

    def count(self) -> int:
        """Samples there are."""
        return len(self.order)

    def header(self, width: int) -> Line | None:
        """Column heads."""
        return response_header(width, index_cells=self._columns.index_cells)

    def item(self, index: int, width: int) -> Line:
        """One sample."""
        row = self.order[index]
        return response_row(row, width, self.look.glyphs, columns=self._columns)

    def item_text(self, index: int) -> str:
        """Prompt, response and label are searched."""
        row = self.order[index]
        return f"{row.index} {row.status} {row.prompt} {row.response} {row.label}"

    def empty(self) -> str:
        """Why there are no samples."""
        view = self.view_shown
        if view is not None and view.note:
            return view.note
        if view is not None and view.rows:
            return f"no sample fits: {visible(self.choice.words)}; & changes it"
        now = self.snapshot.now
        return f"no sample yet: the run is {now.liveness}"

    def about(self) -> tuple[str, str]:
        """Which rollout, how many samples, how complete."""
        title = responses_title(self.snapshot, self.look.glyphs)
        return chosen_title(title, self.choice), self.position()


def chosen_title(title: str, choice: Choice) -> str:
    """A list's title, which says what is left out and how it is ordered."""
    if choice.order:
        title = title.replace("worst first", "").rstrip(" ·.")
    return f"{title}  {visible(choice.words)}" if choice.words else title


def responses_title(snapshot: RunSnapshot, glyphs: Glyphs) -> str:
    """``rollout 37 · 64 samples · worst first``."""
    view = snapshot.viewed
    if view is None:
        return ""
    dot = f" {glyphs.dot} "
    parts = [f"rollout {view.rollout_id}"]
    progress = snapshot.progress
    if view.complete or (view.rows and snapshot.now.liveness is Liveness.PAUSED):
        parts += [f"{len(view.rows)} samples", "worst first"]
    elif progress is not None and progress.rollout_id == view.rollout_id:
        parts.append(f"{progress.done}/{progress.total} generated")
        if progress.running:
            parts.append(f"{progress.running} running")
        if progress.aborted:
            parts.append(f"{progress.aborted} aborted")
        parts.append(f"longest {progress.longest}")
    else:
        parts.append(f"{len(view.rows)} samples so far")
    if not snapshot.following:
        parts.append("history, ] goes back to now")
    return dot.join(parts)
