"""Keys that reach beyond their screen: the run, other screens, copying out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from relax.errors import RelaxError
from relax_tui.commands import COMMANDS, command_line, impossible, refused_words
from relax_tui.comparing import Side, side_of
from relax_tui.keymap import BY_ID, KEYS, Where
from relax_tui.lines import Span, line
from relax_tui.screens.dialogs import ChoiceDialog, ConfirmDialog
from relax_tui.screens.entry import EntryDialog, StopsDialog
from relax_tui.text import visible

if TYPE_CHECKING:
    from relax_tui.app import ConsoleApp


class RunActions:
    """Mixed into every screen."""

    WHERE: ClassVar[Where]
    console: ConsoleApp

    def do_pause(self) -> None:
        """Pauses the run."""
        self._command("pause")

    def do_continue(self) -> None:
        """Lets it go on."""
        self._command("continue")

    def do_step_stage(self) -> None:
        """One stage."""
        self._command("step_stage")

    def do_step_rollout(self) -> None:
        """One rollout."""
        self._command("step_rollout")

    def do_withdraw(self) -> None:
        """Takes a waiting command back."""
        self._command("withdraw")

    def do_abort_generation(self) -> None:
        """Ends generation early."""
        self._command("abort_generation")

    def do_verify(self) -> None:
        """Compares the weights on disk, in the trainer and in the engines."""
        self._command("verify")

    def do_restart_engine(self) -> None:
        """Starts the rollout engine again."""
        self._command("restart_engine")

    def do_stop_run(self) -> None:
        """Ends the run."""
        self._command("stop_run")

    def do_kill_run(self) -> None:
        """Kills the run."""
        self._command("kill_run")

    def _command(self, key_id: str) -> None:
        console = self.console
        snapshot = console.shown
        command = COMMANDS[key_id]
        # Judged by what is, not by a frozen view: a refusal has to be true.
        reason = impossible(key_id, console.newest)
        if reason:
            console.tell(refused_words(command.kind, reason))
            return
        if snapshot.now.liveness not in command.asks:
            console.send(key_id)
            return
        dialog = ConfirmDialog(
            title=f"{BY_ID[key_id].label}: {visible(snapshot.header.name)}?",
            effect=command.effect,
            command=command_line(key_id, snapshot.header.run_dir),
        )

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                console.send(key_id)
            else:
                console.tell(line(Span(f" {command.kind}: not sent", "dim")))

        console.open_screen(dialog, answered)

    def do_stop_when(self) -> None:
        """Asks for the stop conditions."""
        console = self.console
        reason = impossible("stop_when", console.newest)
        if reason:
            console.tell(refused_words("set-stops", reason))
            return

        async def set_stops(conditions: tuple[str, ...]) -> str:
            return await console.ask("stop_when", conditions=conditions)

        def closed(conditions: tuple[str, ...] | None) -> None:
            if conditions is None:
                text = "stop conditions: as they were"
            elif conditions:
                text = f"the run pauses when: {visible(', '.join(conditions))}"
            else:
                text = "no stop condition is in force"
            console.tell(
                line(Span(f" {text}", "dim" if conditions is None else "good"))
            )

        dialog = StopsDialog(
            run_dir=console.shown.header.run_dir,
            conditions=console.newest.stop_conditions,
            set_stops=set_stops,
        )
        console.open_screen(dialog, closed)

    def do_stacks(self) -> None:
        """Asks all processes for their stacks."""
        reason = impossible("stacks", self.console.newest)
        if reason:
            self.console.tell(refused_words("stacks", reason))
        else:
            self.console.ask_stacks()

    # Other screens

    def do_help(self) -> None:
        """Opens the help of this screen."""
        from relax_tui.screens.help import HelpScreen  # noqa: PLC0415 - rarely needed

        if self.WHERE is Where.HELP:
            self.console.tell(line(Span(" this is the help; q goes back", "dim")))
            return
        self.console.open_screen(HelpScreen(self.WHERE))

    def do_palette(self) -> None:
        """Offers every action of this screen by name."""
        options = [
            (key.id, f"{key.display:<5} {key.label}", key.help)
            for key in KEYS
            if self.WHERE in key.where and key.id != "palette"
        ]
        dialog = ChoiceDialog(title="all actions", options=options, typed=True)
        self.console.open_screen(dialog, self._chosen)

    def _chosen(self, key_id: str | None) -> None:
        if key_id:
            self.console.press(key_id)

    def do_triage(self) -> None:
        """Opens verdicts and evidence."""
        from relax_tui.screens.triage import TriageScreen  # noqa: PLC0415

        self._open(Where.TRIAGE, TriageScreen)

    def do_log(self) -> None:
        """Opens the log."""
        from relax_tui.screens.log import LogScreen  # noqa: PLC0415

        self._open(Where.LOG, LogScreen)

    def do_compare_with(self) -> None:
        """Asks what to compare the rollout on screen with."""
        snapshot = self.console.shown
        viewed, run_dir = snapshot.viewed, snapshot.header.run_dir
        if not run_dir:
            text = " no run is shown yet: there is nothing to compare"
            self.console.tell(line(Span(text, "dim")))
            return
        ours = Side(path=Path(run_dir), rollout=viewed.rollout_id if viewed else None)
        place = f"rollout {viewed.rollout_id}" if viewed else "the run"
        before = [n for _, n in snapshot.rollouts if viewed and n < viewed.rollout_id]
        dialog = EntryDialog(
            title=f"compare {place} with: a rollout, RUN, RUN:ROLLOUT or FILE",
            value=str(before[-1]) if before else "",
        )

        def named(words: str | None) -> None:
            if words is not None:
                self.compare_sides(words, ours)

        self.console.open_screen(dialog, named)

    def compare_sides(self, words: str, b: Side) -> None:
        """Opens the comparison of what a person named, as A, with B."""
        from relax_tui.screens.compare import CompareScreen  # noqa: PLC0415

        try:
            a = side_of(words, str(b.path))
        except RelaxError as error:
            text = f" not compared: {visible(str(error))}"
            self.console.tell(line(Span(text, "warn")))
            return
        if a == b:
            text = " that is the rollout on screen itself: name another one"
            self.console.tell(line(Span(text, "warn")))
            return
        self.console.open_screen(CompareScreen(a, b))

    def _open(self, where: Where, screen: type) -> None:
        if self.WHERE is where:
            text = f" this is the {where} screen; q goes back"
            self.console.tell(line(Span(text, "dim")))
            return
        self.console.open_screen(screen())

    def do_runs(self) -> None:
        """Opens the list of runs."""
        self.console.show_runs()

    def do_dumps(self) -> None:
        """Opens the catalogue of dumps."""
        self.console.show_dumps()

    def do_back(self) -> None:
        """One screen back; from the first one out of the console."""
        self.console.go_back()

    def do_leave(self) -> None:
        """Out of the console."""
        self.console.exit()

    def do_freeze(self) -> None:
        """Freezes the view or lets it move again."""
        self.console.freeze()

    def do_previous_rollout(self) -> None:
        """History."""
        self.console.view_rollout(-1)

    def do_next_rollout(self) -> None:
        """Towards now."""
        self.console.view_rollout(1)

    # Copying out

    def copied(self) -> tuple[str, str]:
        """What `y` copies; screens say."""
        raise NotImplementedError

    def copies(self) -> list[tuple[str, str, str]]:
        """What `Y` offers; screens say."""
        raise NotImplementedError

    def do_copy(self) -> None:
        """Copies what has the focus."""
        self.console.copy_out(*self.copied())

    def do_copy_choose(self) -> None:
        """Asks what to copy."""
        offers = [offer for offer in self.copies() if offer[2]]
        options = [(id, name, text.split("\n")[0][:80]) for id, name, text in offers]

        def chosen(wanted: str | None) -> None:
            for id_, name, text in offers:
                if id_ == wanted:
                    self.console.copy_out(text, name)

        self.console.open_screen(
            ChoiceDialog(title="copy what", options=options), chosen
        )

    def do_write(self) -> None:
        """Writes it to a file."""
        self.console.copy_out(*self.copied(), to_clipboard=False)

    def do_pager(self) -> None:
        """Opens it in the pager."""
        self.console.page(*self.copied())
