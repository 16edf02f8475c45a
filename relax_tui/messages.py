"""What the console tells itself: events in the past participle, wishes as requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from relax_tui.sources.base import RunSnapshot

if TYPE_CHECKING:
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
