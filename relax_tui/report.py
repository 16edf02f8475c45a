"""The headless twin of the screens: a run as plain text, by the same functions."""

from __future__ import annotations

from pathlib import Path

from relax.errors import ArgumentError
from relax_tui.lines import BLANK, Line, Span, fit, join, plain
from relax_tui.panes.figures import figure_rows
from relax_tui.panes.metrics import metric_rows
from relax_tui.panes.pane import title_rule
from relax_tui.panes.responses import (
    columns_of,
    response_header,
    response_row,
    responses_title,
    worst_first,
)
from relax_tui.panes.sample import conversation, difference_rows, sample_title
from relax_tui.panes.stages import stage_rows
from relax_tui.panes.strip import alarm_rows, clock_line, status_line
from relax_tui.panes.verdicts import verdict_counts, verdict_rows
from relax_tui.panes.walk import walk_rows
from relax_tui.sources.base import RunSnapshot
from relax_tui.sources.run_folder import RunFolderSource
from relax_tui.theme import Glyphs, Look

RESPONSES = 10


def report(snapshot: RunSnapshot, *, glyphs: Glyphs, width: int = 100) -> str:
    """A run as text.

    Args:
        snapshot: The run.
        glyphs: ASCII or not.
        width: Cells of a row.

    Returns:
        Rows without colours or escapes, ending with a newline.
    """
    rows: list[Line] = [
        join([status_line(snapshot, width, glyphs), clock_line(snapshot, width)])
    ]
    rows += alarm_rows(snapshot, width, glyphs)
    rows += walk_rows(snapshot, width, 40, glyphs)
    for name, right, content in (
        ("first step", "", figure_rows(snapshot, width, glyphs)),
        ("now", "", metric_rows(snapshot, width, glyphs)),
        ("stages", "", stage_rows(snapshot, width, glyphs)),
        (
            "verdicts",
            verdict_counts(snapshot),
            verdict_rows(snapshot, width, 40, glyphs),
        ),
    ):
        rows += [BLANK, title_rule(name, right, width, glyphs=glyphs), *content]
    rows += [BLANK, *_responses(snapshot, width, glyphs)]
    return (
        "\n".join(
            plain(fit(row, width, ellipsis=glyphs.ellipsis)).rstrip() for row in rows
        )
        + "\n"
    )


def full_report(
    run_dir: Path,
    *,
    glyphs: Glyphs,
    rollout: int | None = None,
    sample: int | None = None,
) -> str:
    """A run folder as text.

    Args:
        run_dir: The run folder.
        glyphs: ASCII or not.
        rollout: Rollout whose samples are shown; None for the newest.
        sample: A sample to show in full.

    Returns:
        The text.

    Raises:
        RelaxError: The folder cannot be read, or has no such rollout or sample.
    """
    source = RunFolderSource(run_dir)
    snapshot = source.collect()
    if rollout is not None:
        found = [place for place in snapshot.rollouts if place[1] == rollout]
        if not found:
            raise ArgumentError(
                f"--rollout {rollout}: not recorded; there are"
                f" {len(snapshot.rollouts)} rollouts in {run_dir}"
            )
        source.view(found[-1])
        snapshot = source.collect()
    text = report(snapshot, glyphs=glyphs)
    return text if sample is None else text + _sample(snapshot, sample, glyphs)


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
    return "\n".join(plain(row).rstrip() for row in rows) + "\n"


def _responses(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    view = snapshot.viewed
    title = f"responses {responses_title(snapshot, glyphs)}".strip()
    rows = [title_rule(title, "", width, glyphs=glyphs)]
    if view is None or not view.rows:
        note = view.note if view else "no rollout is recorded yet"
        return [*rows, (Span(f" {note}"),)]
    columns = columns_of(snapshot)
    rows.append(response_header(width, index_cells=columns.index_cells))
    order = worst_first(view.rows) if view.complete else list(view.rows)
    rows += [
        response_row(row, width, glyphs, columns=columns) for row in order[:RESPONSES]
    ]
    if len(order) > RESPONSES:
        rows.append((Span(f" and {len(order) - RESPONSES} more", "dim"),))
    return rows
