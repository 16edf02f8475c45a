"""The headless twin of the screens: a run as plain text, by the same functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from relax.errors import ArgumentError
from relax_tui.lines import BLANK, Line, Span, fit, join, plain
from relax_tui.panes.alarm import alarm_rows
from relax_tui.panes.figures import figure_rows
from relax_tui.panes.metrics import latest_place, metric_rows
from relax_tui.panes.pane import title_rule
from relax_tui.panes.responses import (
    PREVIEW,
    columns_of,
    pointed_at,
    response_header,
    response_row,
    responses_title,
    worst_first,
)
from relax_tui.panes.sample import conversation, difference_rows, sample_title
from relax_tui.panes.stages import stage_rows
from relax_tui.panes.strip import clock_line, status_line
from relax_tui.panes.verdicts import UNHEALTHY, verdict_counts, verdict_rows
from relax_tui.panes.walk import walk_rows
from relax_tui.printing import UNCUT
from relax_tui.sources.base import RunSnapshot
from relax_tui.sources.run_folder import RunFolderSource
from relax_tui.text import visible
from relax_tui.theme import Glyphs, Look

RESPONSES = 10
LAYOUT = 100


def report(snapshot: RunSnapshot, *, glyphs: Glyphs, width: int | None = None) -> str:
    """A run as text.

    Args:
        snapshot: The run.
        glyphs: ASCII or not.
        width: Cells of a row; None cuts nothing, for files and pipes.

    Returns:
        Rows without colours or escapes, ending with a newline.
    """
    layout, uncut = width or LAYOUT, width or UNCUT
    # What could not be read has rows of its own here.
    first = status_line(replace(snapshot, unread=()), uncut, glyphs)
    rows: list[Line] = [join([first, clock_line(snapshot, layout)])]
    rows += alarm_rows(snapshot, uncut, glyphs)
    rows += [(Span(f" {text}", "warn"),) for text in snapshot.unread]
    rows += walk_rows(snapshot, layout, 40, glyphs)
    place = latest_place(snapshot, "rollout ")
    shown = "" if snapshot.following else place
    for name, right, content in (
        ("first step", "", figure_rows(snapshot, layout, glyphs)),
        ("now" if snapshot.following else "then", place,
         metric_rows(snapshot, layout, glyphs)),
        ("stages", shown, stage_rows(snapshot, layout, glyphs)),
        ("verdicts", "  ".join(filter(None, (shown, verdict_counts(snapshot)))),
         _verdicts(snapshot, width, glyphs)),
    ):  # fmt: skip
        rows += [BLANK, title_rule(name, right, layout, glyphs=glyphs), *content]
    rows += [BLANK, *_responses(snapshot, width, glyphs)]
    return _text(rows, uncut, glyphs)


def _text(rows: Sequence[Line], width: int, glyphs: Glyphs) -> str:
    """Rows as they may be printed: cut to the width, ASCII where nothing else goes."""
    plain_rows = (plain(fit(row, width, ellipsis=glyphs.ellipsis)) for row in rows)
    ascii_only = glyphs.rule.isascii()
    return "".join(
        visible(row.rstrip(), ascii_only=ascii_only) + "\n" for row in plain_rows
    )


def _verdicts(snapshot: RunSnapshot, width: int | None, glyphs: Glyphs) -> list[Line]:
    if width is not None or not snapshot.verdicts:
        return verdict_rows(snapshot, width or LAYOUT, 40, glyphs)
    rows: list[Line] = []
    for line in snapshot.verdicts:
        verdict = line.verdict
        again = f" x{line.times}" if line.times > 1 else ""
        where = f"{verdict.where}{again}"
        text = f" {verdict.status:<10} {verdict.rule:<22} {where:<14} {verdict.summary}"
        rows.append((Span(visible(text)),))
        if str(verdict.status) in UNHEALTHY:
            rows += [
                (Span(visible(f"{'':>12}{cause.text} ({cause.confidence})")),)
                for cause in verdict.causes[:1]
            ]
    return rows


def full_report(
    run_dir: Path,
    *,
    glyphs: Glyphs,
    width: int | None = None,
    rollout: int | None = None,
    sample: int | None = None,
) -> str:
    """A run folder as text.

    Args:
        run_dir: The run folder.
        glyphs: ASCII or not.
        width: Cells of a row; None cuts nothing.
        rollout: Rollout whose samples are shown; None for the newest.
        sample: A sample to show in full.

    Returns:
        The text.

    Raises:
        RelaxError: The folder cannot be read, or has no such rollout or sample.
    """
    source = RunFolderSource(run_dir)
    how = _How(glyphs=glyphs, width=width)
    return _report_of(source, how, rollout=rollout, sample=sample)


def foreign_report(
    paths: Sequence[Path],
    *,
    glyphs: Glyphs,
    width: int | None = None,
    rollout: int | None = None,
    sample: int | None = None,
) -> str:
    """Logs, dumps and JSONL of another engine's run as text.

    Args:
        paths: What there is of it.
        glyphs: ASCII or not.
        width: Cells of a row; None cuts nothing.
        rollout: Rollout whose samples are shown; None for the newest.
        sample: A sample to show in full.

    Returns:
        The text.

    Raises:
        RelaxError: Something cannot be read, or there is no such rollout or sample.
    """
    # What reads dumps and logs is not needed for a run of our own.
    from relax_tui.sources.foreign import ForeignSource  # noqa: PLC0415

    source = ForeignSource(paths)
    try:
        how = _How(glyphs=glyphs, width=width)
        return _report_of(source, how, rollout=rollout, sample=sample)
    finally:
        source.stop()


class _Collected(Protocol):
    """A source that can be asked for everything at once."""

    run_dir: Path

    def collect(self) -> RunSnapshot:
        """Everything there is now."""

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Looks at another rollout."""


@dataclass(frozen=True, kw_only=True)
class _How:
    """How a report is drawn."""

    glyphs: Glyphs
    width: int | None


def _report_of(
    source: _Collected, how: _How, *, rollout: int | None, sample: int | None
) -> str:
    snapshot = source.collect()
    if rollout is not None:
        found = [place for place in snapshot.rollouts if place[1] == rollout]
        if not found:
            raise ArgumentError(
                f"--rollout {rollout}: not recorded; there are"
                f" {len(snapshot.rollouts)} rollouts in {source.run_dir}"
            )
        source.view(found[-1])
        snapshot = source.collect()
    text = report(snapshot, glyphs=how.glyphs, width=how.width)
    return text if sample is None else text + _sample(snapshot, sample, how.glyphs)


def _sample(snapshot: RunSnapshot, index: int, glyphs: Glyphs) -> str:
    view = snapshot.viewed
    row = next((r for r in view.rows if r.index == index), None) if view else None
    if view is None or row is None:
        raise ArgumentError(f"--sample {index}: not in the rollout that is shown")
    tokens = view.tokens.sample(row.row) if view.tokens else None
    title = f"sample {sample_title(row, glyphs)}"
    rows = [
        BLANK,
        title_rule(title, "", 100, glyphs=glyphs),
        *conversation(row, 100, Look(glyphs=glyphs)),
        *difference_rows(row, tokens, 100, glyphs),
    ]
    return _text(rows, UNCUT, glyphs)


def _responses(snapshot: RunSnapshot, width: int | None, glyphs: Glyphs) -> list[Line]:
    view = snapshot.viewed
    title = f"responses {responses_title(snapshot, glyphs)}".strip()
    layout = width or max(LAYOUT, len(title) + 4)
    rows = [title_rule(title, "", layout, glyphs=glyphs)]
    if view is None or not view.rows:
        note = view.note if view else "no rollout is recorded yet"
        return [*rows, (Span(f" {note}"),)]
    columns = columns_of(snapshot)
    rows.append(response_header(layout, index_cells=columns.index_cells))
    pointed = pointed_at(snapshot)
    order = worst_first(view.rows, pointed) if view.complete else list(view.rows)
    preview = None if width is None else PREVIEW
    rows += [
        response_row(row, layout, glyphs, columns=columns, preview=preview)
        for row in order[:RESPONSES]
    ]
    if len(order) > RESPONSES:
        rows.append((Span(f" and {len(order) - RESPONSES} more", "dim"),))
    return rows
