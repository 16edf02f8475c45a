"""What the app looks at: a run or a dump at a time, and what it looked at before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import on
from textual.screen import Screen

from relax.errors import RelaxError
from relax_tui.commands import RunSession
from relax_tui.lines import Span, line
from relax_tui.messages import DumpsChosen, RunChosen, SnapshotTaken
from relax_tui.screens.live import LiveScreen
from relax_tui.sources.base import RunSnapshot, RunSource
from relax_tui.steering import SteeringApp
from relax_tui.terminal import Capabilities
from relax_tui.text import visible

OpenRun = Callable[[Path, "LookingApp"], RunSource]
MakeSource = Callable[[], RunSource]


class LookingApp(SteeringApp, inherit_bindings=False):
    """An app with one source of snapshots, that of the topmost live screen.

    Args:
        capabilities: What the terminal can do; None for tests.
        open_run: Makes the source of a run folder; called when its screen stands.
    """

    def __init__(self, capabilities: Capabilities | None, open_run: OpenRun) -> None:
        super().__init__(capabilities)
        self._open_run = open_run
        self._source: RunSource | None = None
        # By live screen, in the order of the stack.
        self._looked_at: dict[Screen[Any], tuple[Path, MakeSource]] = {}
        self.frozen_at = ""

    def open(self, run_dir: Path) -> None:
        """Shows a run."""
        self._look_at(run_dir, lambda: self._open_run(run_dir, self))

    @on(RunChosen)
    def _run_chosen(self, event: RunChosen) -> None:
        self.open(event.run_dir)

    @on(DumpsChosen)
    def _dumps_chosen(self, event: DumpsChosen) -> None:
        # What reads dumps is not needed for a run of our own.
        from relax_tui.sources.foreign import ForeignSource  # noqa: PLC0415

        paths = event.paths
        self._look_at(paths[0], lambda: ForeignSource(paths))

    def _look_at(self, path: Path, make: MakeSource) -> None:
        self.close_run()
        screen = LiveScreen()
        self._looked_at[screen] = (path, make)
        self.open_screen(screen)
        self.call_after_refresh(self._start_source, path, make)

    def _start_source(self, path: Path, make: MakeSource) -> None:
        self.session = RunSession(path)
        try:
            self._source = make()
        except RelaxError as error:
            # It has been deleted or damaged since it was listed.
            self.tell(line(Span(f" {visible(str(error))}", "bad")))
            return
        self._source.start(lambda snapshot: self._post(snapshot))

    def _post(self, snapshot: RunSnapshot) -> None:
        if self.is_running:
            self.post_message(SnapshotTaken(snapshot))

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Asks the source for another rollout; None follows the newest."""
        if self._source is not None:
            self._source.view(rollout)

    def stop_looking(self) -> bool:
        """Lets go of what the screen in front looks at; False if it does not look."""
        if self._looked_at.pop(self.screen, None) is None:
            return False
        self.close_run()
        return True

    def look_again(self) -> None:
        """Goes back to what a live screen further down the stack looks at."""
        if self._source is None and self._looked_at:
            self._start_source(*list(self._looked_at.values())[-1])

    def close_run(self) -> None:
        """Lets go of the run that is shown; the run itself goes on."""
        if self._source is not None:
            self._source.stop()
        self._source = None
        self.newest = self.shown = RunSnapshot()
        self.frozen_at = ""
