"""What the console tells itself: events in the past participle, wishes as requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from relax_tui.sources.base import RunSnapshot

if TYPE_CHECKING:
    from relax.dump.entry import DumpEntry
    from relax_tui.runs import RunSummary


class SnapshotTaken(Message):
    """The collector took a new snapshot.

    Args:
        snapshot: The run as it is now.
    """

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """A newer snapshot makes one that still waits useless."""
        return isinstance(message, SnapshotTaken)


class DriverEnded(Message):
    """The driver we started ended before its run began.

    Args:
        words: What it wrote last.
        returncode: Its exit code.
    """

    def __init__(self, words: str, returncode: int) -> None:
        super().__init__()
        self.words = words
        self.returncode = returncode


class RunChosen(Message):
    """A person chose a run from the list.

    Args:
        run_dir: Its folder.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self.run_dir = run_dir


class RunsListed(Message):
    """The list of runs was read.

    Args:
        runs: The runs, newest first.
    """

    def __init__(self, runs: Sequence[RunSummary]) -> None:
        super().__init__()
        self.runs = runs


class DumpsListed(Message):
    """Folders of dumps were read.

    Args:
        folders: The folders, in the order in which they are shown.
        entries: ``(folder, dump)``, by folder and rollout.
        problems: Folders that could not be read, one sentence each.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        entries: Sequence[tuple[Path, DumpEntry]],
        problems: Sequence[str],
    ) -> None:
        super().__init__()
        self.folders, self.entries, self.problems = folders, entries, problems


class DumpRead(Message):
    """A part of a dump that is being verified was read.

    Args:
        entry: The dump.
        num_bytes: Bytes read so far.
    """

    def __init__(self, entry: DumpEntry, num_bytes: int) -> None:
        super().__init__()
        self.entry, self.num_bytes = entry, num_bytes

    def can_replace(self, message: Message) -> bool:
        """Only the newest count matters."""
        return isinstance(message, DumpRead)


class DumpVerified(Message):
    """A dump was compared with its hashes.

    Args:
        entry: The dump.
        problems: What is wrong, one sentence each; None when it was cancelled.
        seconds: How long it took.
    """

    def __init__(
        self, entry: DumpEntry, problems: Sequence[str] | None, seconds: float
    ) -> None:
        super().__init__()
        self.entry, self.problems, self.seconds = entry, problems, seconds


class DumpDeleted(Message):
    """A dump was deleted, as far as it could be.

    Args:
        words: What went and what is left, one sentence.
        whole: Whether nothing is left.
    """

    def __init__(self, words: str, *, whole: bool) -> None:
        super().__init__()
        self.words, self.whole = words, whole


class DumpsChosen(Message):
    """A person chose a dump from the catalogue.

    Args:
        paths: Its manifest, or its files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self.paths = tuple(paths)
