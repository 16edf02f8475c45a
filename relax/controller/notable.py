"""Lines of the workers' logs that are worth a look become events.

The logs themselves stay where they are; an event says which file, which byte and what
stands there. They are few: of one kind only the first in each file, and of all no more
than a person would read.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relax.arguments.environment import redactor
from relax.events.append import EventSink
from relax.events.types import NotableLine
from relax.triage.log_signatures import FAILURES, MARKS

POLL_SECONDS: Final = 2.0
MOST_EVENTS: Final = 100
MOST_OF_A_KIND: Final = 3
MOST_BYTES: Final = 1_000_000
"""Read of one file at one look; what is beyond is skipped, the newest is kept."""

TEXT_LENGTH: Final = 300
_OWN_LOG: Final = "engine.log"
"""The driver's: what it has to say is events already."""

_MARKS: Final = (*FAILURES, "scheduler", "error")
_NOTABLE: Final = re.compile(
    "|".join(f"(?P<{name}>{MARKS[name]})" for name in _MARKS).encode()
)


@dataclass(kw_only=True)
class _Followed:
    """How far a file has been read.

    Attributes:
        told: By mark: events so far.
    """

    offset: int
    told: Counter[str] = field(default_factory=Counter)


class LogWatch:
    """Follows the workers' logs of one attempt.

    Args:
        run_dir: The run folder; what its logs hold already is of earlier attempts.
        events: Told of each notable line.
    """

    def __init__(self, run_dir: Path, *, events: EventSink) -> None:
        self._folder = run_dir / "logs"
        self._events = events
        self._redact = redactor()
        self._one_at_a_time = threading.Lock()
        self._left = MOST_EVENTS
        self._files = {
            path: _Followed(offset=path.stat().st_size) for path in self._logs()
        }

    async def follow(self) -> None:
        """Looks every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await asyncio.to_thread(self.look)

    def look(self, *, ended: bool = False) -> None:
        """Reads what has been added.

        Args:
            ended: Nobody writes any more: a last line without its end counts too.
        """
        with self._one_at_a_time:
            for path in self._logs():
                followed = self._files.setdefault(path, _Followed(offset=0))
                for offset, line in _new_lines(path, followed, ended=ended):
                    self._tell(path, followed, offset, line)

    def _logs(self) -> list[Path]:
        return [p for p in sorted(self._folder.glob("*.log")) if p.name != _OWN_LOG]

    def _tell(self, path: Path, followed: _Followed, offset: int, line: bytes) -> None:
        found = _NOTABLE.search(line)
        if found is None or found.lastgroup is None or not self._left:
            return
        followed.told[found.lastgroup] += 1
        if followed.told[found.lastgroup] > MOST_OF_A_KIND:
            return
        self._left -= 1
        text = self._redact.text(line.decode("utf-8", "backslashreplace").strip())
        self._events.append(
            NotableLine(
                file=f"logs/{path.name}", offset=offset, text=text[:TEXT_LENGTH]
            )
        )


def _new_lines(
    path: Path, followed: _Followed, *, ended: bool
) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line since the last look."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < followed.offset:
                followed.offset = 0  # rotated
            start = max(followed.offset, size - MOST_BYTES)
            stream.seek(start)
            content = stream.read(MOST_BYTES)
    except OSError:
        return
    whole = len(content) if ended else content.rfind(b"\n") + 1
    followed.offset = start + whole
    at = start
    for line in content[:whole].splitlines(keepends=True):
        yield at, line
        at += len(line)
