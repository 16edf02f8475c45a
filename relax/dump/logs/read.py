"""A log as a whole: numbers by rollout and step, printed responses, marked lines."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax.dump.logs.layouts import LAYOUTS
from relax.dump.logs.scan import Hit, LogScanner
from relax.dump.logs.story import LogStory
from relax.errors import DumpError

PROGRESS_BYTES: Final = 16 << 20
NO_MARKS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """How far reading is.

    Attributes:
        done: Bytes read.
        total: Bytes that the file had when it was asked.
    """

    done: int
    total: int


class LogReader:
    """Follows a log; use it as a context manager.

    Args:
        path: The log.
        marks: Name to regular expression (in what RE2 and Python have in common) of
            lines that are wanted as they are; the first that fits names the line.

    Attributes:
        story: What the log has said so far.

    Raises:
        DumpMissing: There is no such file.
        DumpError: It cannot be read.
    """

    def __init__(self, path: Path, *, marks: Mapping[str, str] = NO_MARKS) -> None:
        self.path = path
        self.story = LogStory(path)
        self._expressions = {name: re.compile(text) for name, text in marks.items()}
        wanted = [*marks.values(), *(layout.expression for layout in LAYOUTS)]
        self._expression = "|".join(f"(?:{text})" for text in wanted)
        self._scanner = LogScanner(path, self._expression)

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._scanner.close()

    def poll(self) -> bool:
        """Reads the next block.

        Returns:
            Whether there was one.

        Raises:
            DumpError: The file cannot be read any more.
        """
        hits = self._scanner.poll()
        if hits is None:
            if self._scanner.replaced:
                self._start_again()
                return True
            return False
        self._take(hits)
        return True

    def finish(self) -> None:
        """Takes a last line without a newline; for a log that grows no more."""
        self._take(self._scanner.finish())

    @property
    def progress(self) -> LogProgress:
        """How far reading is."""
        return LogProgress(done=self._scanner.position, total=self._scanner.size)

    def _start_again(self) -> None:
        """The file was rotated or cut: what it says now is another story."""
        self._scanner.close()
        self._scanner = LogScanner(self.path, self._expression)
        self.story = LogStory(self.path)

    def _take(self, hits: list[Hit]) -> None:
        for hit in hits:
            self.story.take(hit, self._expressions)
        self.story.bytes, self.story.lines = (
            self._scanner.position,
            self._scanner.lines,
        )


def read_log(
    path: Path,
    *,
    marks: Mapping[str, str] = NO_MARKS,
    on_progress: Callable[[LogProgress], None] | None = None,
    cancel: threading.Event | None = None,
) -> LogStory:
    """Reads a log to its end.

    Args:
        path: The log.
        marks: As for `LogReader`.
        on_progress: Called about every 16 MiB.
        cancel: Reading ends soon after it is set.

    Returns:
        What it says.

    Raises:
        DumpMissing: There is no such file.
        DumpError: It cannot be read, or reading was cancelled.
    """
    told = 0
    with LogReader(path, marks=marks) as reader:
        while reader.poll():
            if cancel is not None and cancel.is_set():
                raise DumpError("reading was cancelled", where=str(path))
            progress = reader.progress
            if on_progress is not None and progress.done - told >= PROGRESS_BYTES:
                told = progress.done
                on_progress(progress)
        reader.finish()
        return reader.story


def all_numbers(story: LogStory) -> dict[str, Any]:
    """The log's numbers as plain data, for ``--json``."""
    return {
        str(number): {name: spot.value for name, spot in sorted(values.items())}
        for number, values in sorted(story.by_rollout().items())
    }
