"""The app's hands: telling the person, commanding the run, copying out."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from textual import events, work
from textual.app import App, SuspendNotSupported
from textual.screen import Screen

from relax.arguments.environment import state_home
from relax.errors import RelaxError
from relax_tui import commands
from relax_tui.copying import copy_text, encoded, write_text
from relax_tui.lines import BLANK, Line, Span, line
from relax_tui.panes.choosing import ALL
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.screens.dialogs import Dialog, TextDialog
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible

if TYPE_CHECKING:
    from textual.await_complete import AwaitComplete
    from textual.widget import AwaitMount

    from relax.control.orders import Order
    from relax_tui.terminal import Capabilities

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the console ended: an exit code, and words for the shell."""

    returncode: int = 0
    words: str = ""


class SteeringApp(App[Outcome], inherit_bindings=False):
    """What an app of the console does for its screens.

    Args:
        capabilities: What the terminal can do; None for tests.
    """

    def __init__(self, capabilities: Capabilities | None) -> None:
        super().__init__(ansi_color=True)
        self.capabilities = capabilities
        self.newest = RunSnapshot()
        self.shown = self.newest
        self.message: Line = BLANK
        self.choice = ALL
        self.session: commands.RunSession | None = None
        self._opening: AwaitMount | AwaitComplete | None = None

    def open_screen(
        self,
        screen: Screen[Answer],
        answered: Callable[[Answer | None], None] | None = None,
    ) -> None:
        """Puts a screen or a dialog in front; the next key is for it.

        Args:
            screen: The screen.
            answered: Told what a dialog was dismissed with.
        """
        self._opening = self.push_screen(screen, answered)

    async def on_event(self, event: events.Event) -> None:
        """Keys act one after the other, each on what the one before has opened.

        Textual hands a key to the screen that is in front when it arrives, and screens
        handle theirs at their own pace: what is typed right behind a key that opens a
        dialog would act on the screen below, which is to say on the run.
        """
        typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if typed and self._opening is not None:
            opening, self._opening = self._opening, None
            await opening
        if typed and isinstance(self.screen, Dialog):
            if isinstance(event, events.Key):
                self.screen.take_key(event.key, event.character)
            elif isinstance(event, events.Paste):
                self.screen.take_paste(event.text)
            return
        await super().on_event(event)

    @property
    def top(self) -> ConsoleScreen | None:
        """The screen that keys go to, below any dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ConsoleScreen):
                return screen
        return None

    def tell(self, message: Line) -> None:
        """Shows a message on whatever screen is in front."""
        self.message = message
        if self.top is not None:
            self.top.say(message)

    def tell_outcome(self) -> None:
        """Says what became of the newest of our commands, once."""
        if self.session is None:
            return
        words = commands.outcome_words(self.newest, self.session.sent)
        if words is not None and words != self.last_outcome:
            self.last_outcome = words
            self.tell(words)

    last_outcome: Line = BLANK

    @work(group="commands")
    async def send(self, key_id: str, *, order: Order | None = None) -> None:
        """Sends a command and says what became of it."""
        await self.ask(key_id, order=order)

    async def ask(
        self,
        key_id: str,
        *,
        conditions: tuple[str, ...] = (),
        order: Order | None = None,
    ) -> str:
        """Sends a command, says what became of it, and gives the refusal or ''."""
        kind = commands.COMMANDS[key_id].kind
        if self.session is None:
            return "no run is shown"
        self.last_outcome = BLANK
        self.tell(commands.sent_words(kind))
        command_id = commands.new_command_id()
        try:
            answer = await self.session.send(
                key_id,
                self.shown,
                conditions=conditions,
                order=order,
                command_id=command_id,
            )
        except RelaxError as error:
            self.tell(commands.failed_words(kind, error))
            return f"not sent: {error}"
        done = commands.outcome_words(self.newest, {command_id: kind})
        self.tell(done or commands.answer_words(kind, answer))
        return "" if answer.accepted else answer.reason

    @work(group="stacks", exclusive=True)
    async def ask_stacks(self) -> None:
        """Asks for the stacks of all processes and shows them."""
        if self.session is None:
            return
        self.tell(commands.sent_words("stacks"))
        try:
            stacks = await self.session.stacks()
        except RelaxError as error:
            self.tell(commands.failed_words("stacks", error))
            return
        parts = [f"== {name}\n{text}" for name, text in stacks.stacks.items()]
        parts += [
            f"== {name}: no answer, {why}" for name, why in stacks.missing.items()
        ]
        self.tell(line(Span(f" stacks of {len(stacks.stacks)} processes", "good")))
        content = "\n".join(parts)
        dialog = TextDialog(title="stacks", content=content, copy=self.copy_out)
        self.open_screen(dialog)

    def copy_out(self, text: str, name: str, *, to_clipboard: bool = True) -> None:
        """Copies a text out and says what was tried."""
        folder = state_home() / "relax" / "copied"
        tmux = self.capabilities.tmux if self.capabilities else False
        if to_clipboard:
            done = copy_text(text, name, folder=folder, tmux=tmux)
            if done.osc52:
                self.copy_to_clipboard(encoded(text).decode())
            self._copied(f"{name}: {done.way}; {done.kept}")
            return
        try:
            self._copied(f"{name}: {write_text(text, name, folder=folder)}")
        except OSError as error:
            why = error.strerror or str(error)
            self._copied(f"{name}: not written to {folder}: {why}", role="bad")

    def _copied(self, text: str, *, role: str = "good") -> None:
        self.tell(line(Span(f" {visible(text)}", role)))

    def page(self, text: str, name: str) -> None:
        """Opens a text in the pager, and comes back."""
        pager = self.capabilities.pager if self.capabilities else "less"
        try:
            path = write_text(text, name, folder=state_home() / "relax" / "copied")
            with self.suspend():
                subprocess.run([*shlex.split(pager), str(path)], check=False)
        except (OSError, ValueError, SuspendNotSupported) as error:
            self._copied(f"{name}: {pager} did not open: {error}", role="bad")
