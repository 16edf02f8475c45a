"""Following the event log of a run that lives, and reading one that ended."""

from __future__ import annotations

import re
from pathlib import Path

from relax.errors import RecordError, RecordTooNew
from relax.events.encoding import decode_event
from relax.events.types import Event

_NAME = re.compile(r"a(\d+)-(\d+)\.jsonl")
READ_BYTES = 16 * 1024 * 1024


def event_files(run_dir: Path) -> list[Path]:
    """The event files of a run, in the order in which they were written."""
    folder = run_dir / "events"
    if not folder.is_dir():
        return []
    matched = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    ordered = sorted((int(m[1]), int(m[2]), path) for m, path in matched if m)
    return [path for _, _, path in ordered]


class EventTail:
    """Gives each event of a run once, in order.

    A torn line at the end of the newest file is waited for; at the end of an older file
    it is dropped and counted, like any line that is not an event.

    Args:
        run_dir: The run folder.

    Attributes:
        dropped: Lines that could not be used.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._index = 0
        self._offset = 0
        self._rest = b""
        self.dropped = 0

    def poll(self) -> list[Event]:
        """All events since the last call.

        Raises:
            RecordTooNew: A newer schema wrote the log.
        """
        events: list[Event] = []
        while True:
            files = event_files(self._run_dir)
            if self._index >= len(files):
                return events
            content = self._read(files[self._index])
            if content:
                self._take(content, events)
            elif self._index + 1 < len(files):
                self._next_file()
            else:
                return events

    def _read(self, path: Path) -> bytes:
        # A size check first: following an idle log costs one stat a poll.
        if path.stat().st_size <= self._offset:
            return b""
        with path.open("rb") as stream:
            stream.seek(self._offset)
            content = stream.read(READ_BYTES)
        self._offset += len(content)
        return content

    def _take(self, content: bytes, events: list[Event]) -> None:
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            try:
                events.append(decode_event(line))
            except RecordTooNew:
                raise
            except RecordError:
                self.dropped += 1

    def _next_file(self) -> None:
        if self._rest:
            self.dropped += 1
        self._index += 1
        self._offset = 0
        self._rest = b""


def last_event(run_dir: Path) -> Event | None:
    """The newest event of a run; None when there is none."""
    for path in reversed(event_files(run_dir)):
        for line in reversed(path.read_bytes().split(b"\n")):
            try:
                return decode_event(line)
            except RecordTooNew:
                raise
            except RecordError:
                continue
    return None
