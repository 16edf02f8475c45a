"""Log: the tail of the run's own log, read when it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, ClassVar

from textual.widget import Widget

from relax_tui.keymap import Where
from relax_tui.lines import Line, Span
from relax_tui.panes.pane import ListPane
from relax_tui.screens.console_screen import ConsoleScreen
from relax_tui.sources.base import RunSnapshot
from relax_tui.text import visible

LOGS = ("logs/engine.log", "logs/driver.log")
TAIL_BYTES = 1 << 20
TAIL_LINES = 5000
LINES_AROUND = 500
LINE_CHARACTERS = 2000
_WARNINGS = ("WARN", "warn", "slow")
_ERRORS = ("ERROR", "Error", "Traceback", "CRITICAL", "SIGQUIT", "Killed")


class LogPane(ListPane):
    """Lines of the log; the cursor on the last one follows."""

    def __init__(self, *, number: int, name: str, id: str) -> None:
        super().__init__(number=number, name=name, id=id)
        self.log_lines: list[str] = []
        self.file = ""
        self._pinned = False

    def read_around(self, path: Path, line: int) -> None:
        """Shows what stands around a line, and stays there.

        Args:
            path: The log.
            line: From 1.
        """
        first, self.log_lines = around(path, line)
        self.file = f"{path.name}, line {line}"
        self.cursor = max(line - first, 0)
        self._pinned = True
        self.repaint()

    def read(self, run_dir: Path, *, log: str = "") -> None:
        """Reads the tail again; the view does not jump unless it follows.

        Args:
            run_dir: The run folder.
            log: Another engine's log; '' for the run's own.
        """
        if self._pinned:
            return
        following = self.cursor >= len(self.log_lines) - 1
        for name in (log,) if log else LOGS:
            path = run_dir / name
            if path.is_file() and path.stat().st_size:
                self.file = name
                self.log_lines = tail(path)
                break
        if following:
            self.cursor = max(len(self.log_lines) - 1, 0)
        self.repaint()

    def count(self) -> int:
        """Lines there are."""
        return len(self.log_lines)

    def header(self, width: int) -> Line | None:
        """What of the run's own events could not be shown on any screen."""
        told = "; ".join(self.snapshot.unread)
        return (Span(visible(told), "warn"),) if told else None

    def item(self, index: int, width: int) -> Line:
        """One line; errors and warnings by their words."""
        text = self.log_lines[index]
        bad = any(word in text for word in _ERRORS)
        role = "bad" if bad else "warn" if any(w in text for w in _WARNINGS) else ""
        return (Span(visible(text), role),)

    def empty(self) -> str:
        """Why there is nothing."""
        return f"no log yet ({' or '.join(LOGS)})"

    def about(self) -> tuple[str, str]:
        """Which file."""
        following = self.cursor >= len(self.log_lines) - 1 and not self._pinned
        age = self.position() + (", following" if following else "")
        return self.file, age if self.log_lines else ""


def tail(path: Path) -> list[str]:
    """The last lines of a file that may be very long."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(size - TAIL_BYTES, 0))
        content = stream.read(TAIL_BYTES)
    lines = content.decode("utf-8", "replace").splitlines()
    if size > TAIL_BYTES:
        # The first one began before the tail.
        del lines[:1]
    return [text[:LINE_CHARACTERS] for text in lines[-TAIL_LINES:]]


def around(path: Path, line: int) -> tuple[int, list[str]]:
    """Lines around one, out of a file that may be very long.

    Args:
        path: The log.
        line: From 1.

    Returns:
        Number of the first line, and the lines.
    """
    first = max(line - LINES_AROUND, 1)
    with path.open("rb") as stream:
        number = skip_lines(stream, first - 1)
        found = list(islice(stream, 2 * LINES_AROUND))
    lines = [raw.rstrip(b"\r\n").decode("utf-8", "replace") for raw in found]
    return number + 1, [text[:LINE_CHARACTERS] for text in lines]


def skip_lines(stream: BinaryIO, wanted: int) -> int:
    """Skips lines, a block at a time; how many there were to skip."""
    skipped = 0
    while skipped < wanted:
        block = stream.read(TAIL_BYTES)
        if not block:
            break
        count = block.count(b"\n")
        if skipped + count < wanted:
            skipped += count
            continue
        place = -1
        for _ in range(wanted - skipped):
            place = block.index(b"\n", place + 1)
        stream.seek(place + 1 - len(block), 1)
        skipped = wanted
    return skipped


class LogScreen(ConsoleScreen):
    """The run's log."""

    WHERE: ClassVar[Where] = Where.LOG
    DEFAULT_CSS = "LogScreen #log { height: 1fr; }"

    def __init__(self, file: str = "", line: int = 0) -> None:
        super().__init__()
        self._file, self._line = file, line

    def on_mount(self) -> None:
        """Begins at a line, e.g. of a verdict."""
        if self._file and Path(self._file).is_file():
            self.query_one(LogPane).read_around(Path(self._file), self._line)

    def compose_body(self) -> Iterator[Widget]:
        """One pane."""
        yield LogPane(number=1, name="log", id="log")

    def show(self, snapshot: RunSnapshot) -> None:
        """Each snapshot is a chance to read on."""
        super().show(snapshot)
        pane = self.query_one(LogPane)
        pane.snapshot = snapshot
        if snapshot.header.run_dir:
            pane.read(Path(snapshot.header.run_dir), log=snapshot.header.log)
