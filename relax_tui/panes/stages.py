"""The stages of the rollout that runs: seconds, memory, what is slow; and the start."""

from __future__ import annotations

from collections.abc import Sequence

from relax_tui.lines import Line, Span, join, line_width
from relax_tui.panes.numbers import bytes_text, seconds_text
from relax_tui.panes.pane import Pane
from relax_tui.sources.base import RunSnapshot, StageLine, StageState
from relax_tui.text import visible
from relax_tui.theme import Glyphs

SHORT_STAGES = {
    "generate": "gen",
    "reward": "rew",
    "ref_log_probs": "ref_lp",
    "log_probs": "lp",
    "advantages": "adv",
    "train": "train",
    "update_weights": "upd",
}


def stage_rows(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """The stages in the order in which they run, over one or two rows."""
    if not snapshot.stages and not snapshot.following:
        return [(Span(" not kept: it is too long ago", "dim"),)]
    if not snapshot.stages:
        return startup_rows(snapshot, glyphs)
    cells = [_stage(line, glyphs) for line in snapshot.stages]
    rows: list[Line] = [(Span(" "),)]
    for cell in cells:
        if line_width(rows[-1]) + line_width(cell) + 1 > width:
            rows.append((Span(" "),))
        rows[-1] = (*rows[-1], *cell, Span("  "))
    memory = [s.memory_bytes for s in snapshot.stages if s.memory_bytes]
    if memory:
        text = bytes_text(memory[-1])
        rows[-1] = (*rows[-1], Span("host ", "label"), Span(text, "number"))
    return rows


def startup_rows(snapshot: RunSnapshot, glyphs: Glyphs) -> list[Line]:
    """What is up and what is being waited for."""
    if snapshot.header.mode == "foreign":
        return [(Span(" another engine's stages are not known", "dim"),)]
    if not snapshot.startup:
        return [(Span(" not yet: the driver is starting", "dim"),)]
    parts = [
        (
            Span(
                "up " if line.done else "waits for ", "good" if line.done else "running"
            ),
            Span(visible(line.what)),
            Span(f" {seconds_text(line.seconds, glyphs)}", "dim"),
        )
        for line in snapshot.startup
    ]
    return [(Span(" "), *part) for part in parts]


def _stage(line: StageLine, glyphs: Glyphs) -> Line:
    name = SHORT_STAGES.get(line.stage, line.stage)
    if line.state is StageState.DONE:
        return (
            Span(f"{name} ", "label"),
            Span(seconds_text(line.seconds, glyphs)),
        )
    if line.state is StageState.RUNNING:
        role = "bad" if line.slow else "running"
        word = " SLOW" if line.slow else ""
        return (Span(f"{glyphs.arrow}{name}{word}", role),)
    return (Span(name, "dim"),)


class StagesPane(Pane):
    """The timeline of the rollout that runs."""

    def about(self) -> tuple[str, str]:
        """The rollout, or that the run is starting."""
        rollout = self.snapshot.stages_rollout
        if rollout is None:
            return "", "starting"
        return "", f"rollout {rollout}" if rollout >= 0 else "before rollout 0"

    def body(self, width: int, height: int) -> Sequence[Line]:
        """The stages."""
        rows = stage_rows(self.snapshot, width, self.look.glyphs)
        # While starting the newest lines matter.
        return rows[-height:] if not self.snapshot.stages else rows[:height]


def stage_summary(snapshot: RunSnapshot, glyphs: Glyphs) -> Line:
    """The stages in one row, for the report."""
    return join([_stage(line, glyphs) for line in snapshot.stages])
