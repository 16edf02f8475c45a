"""The console: one app, a stack of screens, one source of snapshots."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.binding import BindingType

from relax.triage.verdict import Place
from relax_tui.keymap import KEYS, Where, bindings
from relax_tui.lines import BLANK, Span, line
from relax_tui.looking import LookingApp, OpenRun
from relax_tui.messages import DriverEnded, SnapshotTaken
from relax_tui.panes.numbers import clock_text
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.screens.dialogs import Dialog
from relax_tui.steering import Outcome
from relax_tui.terminal import Capabilities, end_on_signals, terminal_is_gone
from relax_tui.theme import Look

TERMINAL_SECONDS = 2.0
WIDTHS: Final[list[tuple[int, str]] | None] = [
    (0, "-narrow"),
    (70, "-medium"),
    (110, "-wide"),
]
HEIGHTS: Final[list[tuple[int, str]] | None] = [
    (0, "-tiny"),
    (12, "-short"),
    (30, "-tall"),
]


class ConsoleApp(LookingApp, inherit_bindings=False):
    """Shows one run, or the list of runs.

    Args:
        open_run: Makes the source of a run folder; called when the first screen stands.
        run_dir: The run to show; None shows the list.
        capabilities: What the terminal can do; None for tests.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(bindings())
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(
        self,
        open_run: OpenRun,
        *,
        run_dir: Path | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        super().__init__(capabilities, open_run)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.set_keymap({key.id: ",".join(key.keys) for key in KEYS})
        self._run_dir = run_dir
        self.look = capabilities.look if capabilities else Look()

    # Life

    def on_mount(self) -> None:
        """Puts the first screen up; data come behind it."""
        if self.capabilities is not None:
            end_on_signals(asyncio.get_running_loop(), self.exit)
            self.set_interval(TERMINAL_SECONDS, self._watch_terminal)
        if self._run_dir is None:
            self._push_runs()
        else:
            self.open(self._run_dir)

    def _watch_terminal(self) -> None:
        # An orphan of a closed terminal would read an end of file for ever.
        if terminal_is_gone(sys.__stdin__.fileno() if sys.__stdin__ else -1):
            self.exit()

    async def on_unmount(self) -> None:
        """Ends the collector and the connection."""
        self.close_run()
        if self.session is not None:
            await self.session.close()

    @on(SnapshotTaken)
    def _taken(self, event: SnapshotTaken) -> None:
        self.newest = event.snapshot
        if not self.frozen_at:
            self._show_newest()
        self.tell_outcome()

    @on(DriverEnded)
    def _driver_ended(self, event: DriverEnded) -> None:
        self.exit(Outcome(returncode=event.returncode, words=event.words))

    def _show_newest(self) -> None:
        self.shown = self.newest
        for screen in self.screen_stack:
            # Screens below the top one catch up when they are shown again.
            if isinstance(screen, ConsoleScreen) and screen.is_current:
                screen.show(self.shown)
            elif isinstance(screen, Dialog) and screen.is_current:
                screen.follow(self.newest)

    # Keys

    def action_press(self, key_id: str) -> None:
        """A key of the table was pressed."""
        self.press(key_id)

    def press(self, key_id: str) -> None:
        """Hands a key to the screen in front."""
        if self.top is not None:
            self.top.press(key_id)

    def go_back(self) -> None:
        """One screen back, or out; the run goes on either way."""
        if len(self.screen_stack) <= 2:
            self.exit(Outcome())
            return
        if not self.stop_looking() and self.top and self.top.goes_back_to_now:
            self.view(None)
        self.pop_screen()
        self.tell(BLANK)
        self.look_again()

    def show_dumps(self) -> None:
        """The dumps of the run that is shown, or of the working folder."""
        from relax_tui.screens.dumps import DumpsScreen  # noqa: PLC0415 - opened later

        run_dir = self.shown.header.run_dir
        self.open_screen(DumpsScreen(Path(run_dir) if run_dir else None))

    def show_runs(self) -> None:
        """The list of runs, in front."""
        if self.top is not None and self.top.WHERE is Where.RUNS:
            self.tell(line(Span(" this is the list of runs; q goes back", "dim")))
        else:
            self._push_runs()

    def _push_runs(self) -> None:
        # Reading run.json's protocol takes pydantic: a tenth of a second at the start.
        from relax_tui.screens.runs import RunsScreen  # noqa: PLC0415

        self.open_screen(RunsScreen())

    def freeze(self) -> None:
        """Freezes the view, or lets it catch up."""
        if self.frozen_at:
            self.frozen_at = ""
            self.tell(line(Span(" the view follows again", "dim")))
        else:
            self.frozen_at = clock_text(time.time())
            text = " the view is frozen, the run goes on; space follows again"
            self.tell(line(Span(text, "dim")))
        self._show_newest()

    def view_rollout(self, step: int) -> None:
        """Looks at another rollout; past the newest the view follows again."""
        rollouts = self.newest.rollouts
        viewed = self.newest.viewed
        if viewed is None or not rollouts:
            self.tell(line(Span(" no rollout is recorded yet", "dim")))
            return
        place = rollouts.index((viewed.attempt, viewed.rollout_id)) + step
        if place < 0:
            self.tell(line(Span(" this is the first rollout", "dim")))
        elif place >= len(rollouts):
            self.view(None)
            self.tell(line(Span(" the view follows the newest rollout", "dim")))
        else:
            self.view(rollouts[place])
            text = f" rollout {rollouts[place][1]} of {rollouts[-1][1]}"
            self.tell(line(Span(text, "dim")))

    def open_step(self, where: Place) -> None:
        """Opens the tokens of a place; leaving them, the view is as it was before."""
        from relax_tui.screens.step import StepScreen  # noqa: PLC0415 - opened later

        screen = StepScreen(where.sample_index)
        screen.go_to(where.sample_index, where.position)
        viewed = self.newest.viewed
        found = [one for one in self.newest.rollouts if one[1] == where.rollout_id]
        elsewhere = viewed is None or viewed.rollout_id != where.rollout_id
        if found and elsewhere:
            screen.goes_back_to_now = self.newest.following
            self.view(found[-1])
        self.open_screen(screen)
