"""Dumps: the catalogue of a run's and of other folders, to verify, open and delete."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.widget import Widget

from relax.dump.catalogue import find_dumps, verify
from relax.dump.entry import DumpEntry
from relax.dump.removal import remove_dump
from relax.errors import DumpError
from relax_tui.dump_folders import DUMPS, dump_folders
from relax_tui.dumps_text import removed_text, size_text
from relax_tui.keymap import Where
from relax_tui.lines import BLANK, Span, line
from relax_tui.messages import (
    DumpDeleted,
    DumpRead,
    DumpsChosen,
    DumpsListed,
    DumpVerified,
)
from relax_tui.panes.dumps import DumpPane, DumpsPane
from relax_tui.printing import quoted
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.screens.dialogs import ConfirmDialog
from relax_tui.screens.entry import EntryDialog
from relax_tui.text import visible

TELL_SECONDS = 0.25


class DumpsScreen(ConsoleScreen):
    """Which dumps there are; what each says of itself; whether it is whole.

    Args:
        run_dir: The run whose dumps are listed; None for the working folder's.
    """

    WHERE: ClassVar[Where] = Where.DUMPS
    DEFAULT_CSS = """
    DumpsScreen #dumps { height: 2fr; }
    DumpsScreen #dump { height: 3fr; }
    DumpsScreen.-short #dump { height: 2fr; }
    DumpsScreen.-tiny #dump { display: none; }
    """

    def __init__(self, run_dir: Path | None) -> None:
        super().__init__()
        self._of_run = run_dir
        self._added: list[Path] = []
        self._verifying: threading.Event | None = None

    def compose_body(self) -> Iterator[Widget]:
        """The catalogue, and the dump under the cursor."""
        yield DumpsPane(number=1, name="dumps", id="dumps")
        yield DumpPane(number=2, name="dump", id="dump")

    def first_look(self) -> None:
        """Reads the folders."""
        super().first_look()
        self.query_one("#edge").display = self._of_run is not None
        self.reload()

    def on_unmount(self) -> None:
        """What is being read for nobody is let go."""
        self._cancel()

    def on_screen_resume(self) -> None:
        """There may be other dumps by now."""
        super().on_screen_resume()
        if self.query(DumpsPane):
            self.reload()

    def after_move(self) -> None:
        """The lower pane follows the list."""
        dumps = self.query_one(DumpsPane)
        selected = dumps.selected
        first = selected[1].files[0].path if selected else None
        problems = dumps.verified.get(first) if first else None
        self.query_one(DumpPane).show_dump(selected, problems)

    # The catalogue

    @work(thread=True, exclusive=True, group="dumps")
    def reload(self) -> None:
        """Reads the folders; a big one on a slow disk takes its time."""
        folders = list(dict.fromkeys([*self._folders(), *self._added]))
        entries: list[tuple[Path, DumpEntry]] = []
        problems = []
        for folder in folders:
            try:
                entries += [(folder, entry) for entry in find_dumps(folder)]
            except DumpError as error:
                problems.append(str(error))
        self.post_message(DumpsListed(folders, entries, problems))

    def _folders(self) -> Sequence[Path]:
        if self._of_run is None:
            here = Path(DUMPS)
            return [here] if here.is_dir() else []
        return dump_folders(self._of_run)

    @on(DumpsListed)
    def _listed(self, event: DumpsListed) -> None:
        dumps = self.query_one(DumpsPane)
        dumps.folders, dumps.entries, dumps.known = event.folders, event.entries, True
        dumps.repaint()
        self.after_move()
        for problem in event.problems:
            self.console.tell(line(Span(f" {visible(problem)}", "warn")))

    def do_add_folder(self) -> None:
        """Asks for a folder."""
        dialog = EntryDialog(title="dumps of another folder", value="")

        def answered(text: str | None) -> None:
            if text is None or not text.strip():
                return
            folder = Path(text.strip()).expanduser()
            if not folder.is_dir():
                words = f" {visible(str(folder))}: there is no such folder"
                self.console.tell(line(Span(words, "warn")))
                return
            self._added.append(folder)
            self.reload()

        self.console.open_screen(dialog, answered)

    # One dump

    def _selected(self) -> tuple[Path, DumpEntry] | None:
        dumps = self.query_one(DumpsPane)
        if dumps.selected is None:
            self.console.tell(line(Span(f" {dumps.empty()}", "dim")))
        return dumps.selected

    def do_open(self) -> None:
        """Opens it like a run of another engine."""
        selected = self._selected()
        if selected is not None:
            entry = selected[1]
            whole = entry.manifest_path
            paths = [file.path for file in entry.files] if whole is None else [whole]
            self.post_message(DumpsChosen(paths))

    def copied(self) -> tuple[str, str]:
        """The path of the dump under the cursor."""
        selected = self.query_one(DumpsPane).selected
        if selected is None or self.current is not self.query_one(DumpsPane):
            return super().copied()
        return str(selected[1].files[0].path.absolute()), "path"

    def do_verify_dump(self) -> None:
        """Compares the dump with its hashes; a second press cancels."""
        if self._verifying is not None:
            self._cancel()
            return
        selected = self._selected()
        if selected is not None:
            self._verifying = threading.Event()
            self.verify(selected[1], self._verifying)

    def _cancel(self) -> None:
        if self._verifying is not None:
            self._verifying.set()

    @work(thread=True, group="verify")
    def verify(self, entry: DumpEntry, cancel: threading.Event) -> None:
        """Reads a dump whole, and tells how far it is."""
        begun = time.monotonic()
        told = begun

        def read(num_bytes: int) -> None:
            nonlocal told
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                self.post_message(DumpRead(entry, num_bytes))

        try:
            problems = verify(entry, on_progress=read, cancel=cancel)
        except DumpError:
            problems = None
        self.post_message(DumpVerified(entry, problems, time.monotonic() - begun))

    @on(DumpRead)
    def _read(self, event: DumpRead) -> None:
        share = event.num_bytes / max(event.entry.bytes, 1)
        words = f" verifying: {min(share, 1):.0%} of {size_text(event.entry.bytes)}"
        self.console.tell(line(Span(f"{words}; V cancels", "running")))

    @on(DumpVerified)
    def _verified(self, event: DumpVerified) -> None:
        self._verifying = None
        if event.problems is None:
            self.console.tell(line(Span(" verifying was cancelled", "dim")))
            return
        dumps = self.query_one(DumpsPane)
        dumps.verified[event.entry.files[0].path] = event.problems
        dumps.repaint()
        self.after_move()
        name = f"{event.entry.kind} dump of rollout {visible(event.entry.name)}"
        read = f"{size_text(event.entry.bytes)} in {event.seconds:.1f} s"
        words = "DAMAGED, see below" if event.problems else "whole"
        role = "bad" if event.problems else "good"
        self.console.tell(line(Span(f" {name}: {words} ({read})", role)))

    def do_delete_dump(self) -> None:
        """Asks, and deletes the step's files and its manifest."""
        selected = self._selected()
        if selected is None:
            return
        folder, entry = selected
        count = len(entry.manifest.files) if entry.manifest else len(entry.files)
        files = "1 file" if count == 1 else f"{count} files"
        path = entry.manifest_path or entry.files[0].path
        dialog = ConfirmDialog(
            title=f"delete the dump of rollout {visible(entry.name)}?",
            effect=f"{files}, {size_text(entry.step_bytes)}, are deleted for good. The"
            " run is not touched.",
            command=f"relax-tui dumps delete {quoted(str(path))}",
        )

        def answered(yes: bool | None) -> None:  # noqa: FBT001 - Textual calls it
            if yes:
                self.delete(entry, folder)
            else:
                self.console.tell(line(Span(" nothing was deleted", "dim")))

        self.console.tell(BLANK)
        self.console.open_screen(dialog, answered)

    @work(thread=True, group="delete")
    def delete(self, entry: DumpEntry, folder: Path) -> None:
        """Deletes; a big file on a slow disk takes its time."""
        removed = remove_dump(entry, root=folder)
        words = "; ".join([removed_text([removed]), *removed.left])
        self.post_message(DumpDeleted(words, whole=not removed.left))

    @on(DumpDeleted)
    def _deleted(self, event: DumpDeleted) -> None:
        role = "good" if event.whole else "warn"
        self.console.tell(line(Span(f" {visible(event.words)}", role)))
        self.reload()
