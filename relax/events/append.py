"""Appending to the event log: one writer thread with a bounded queue.

``append`` never waits for the disk and never raises; what had to be dropped because the
queue was full is counted and reported by the next heartbeat. ``sync=True`` asks for an
fsync after the event, which the writer does between events, never inside a step.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from relax.control.run_folder import boot_id
from relax.events.encoding import encode_event
from relax.events.tail import event_files, last_event
from relax.events.types import AttemptOpened, Event, Payload

FILE_BYTES = 64 * 1024 * 1024
QUEUE_EVENTS = 10_000
JOIN_SECONDS = 10.0


class EventSink(Protocol):
    """Takes events: an `EventWriter`, or what stands before one."""

    def append(self, payload: Payload, *, sync: bool = False) -> None:
        """Appends an event; returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class _Queued:
    make: Callable[[], Payload]
    wall: float
    mono: float
    sync: bool


class EventWriter:
    """Appends the events of one attempt.

    Args:
        run_dir: The run folder.
        run_id: The run's id.
        attempt: From 1; the files are ``events/aNN-MMM.jsonl``.
        state: Gives the controller's state for the snapshot that begins each file.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        run_id: str,
        attempt: int,
        state: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        self._folder = run_dir / "events"
        self._run_id = run_id
        self._attempt = attempt
        self._state = state
        self._queue: queue.Queue[_Queued | None] = queue.Queue(QUEUE_EVENTS)
        self._thread = threading.Thread(target=self._drain, name="events", daemon=True)
        self._seq = 0
        self._file_number = 0
        self._descriptor = -1
        self._size = 0
        self.dropped = 0
        self.failure: OSError | None = None

    def open(self) -> Self:
        """Opens the attempt's first file and starts the writer.

        Raises:
            OSError: The folder cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        before = last_event(self._folder.parent)
        self._seq = before.seq + 1 if before else 0
        self._open_file()
        self._thread.start()
        return self

    def append(self, payload: Payload, *, sync: bool = False) -> None:
        """Appends an event; returns at once.

        Args:
            payload: What happened.
            sync: Ask for an fsync after it (at stage ends).
        """
        self.append_made(lambda: payload, sync=sync)

    def append_made(self, make: Callable[[], Payload], *, sync: bool = False) -> None:
        """Appends an event that is made when its turn comes; returns at once.

        Events after it wait, so that order and times stay those of what happened.

        Args:
            make: Gives the event, in the writer's thread; it may wait for what the
                event speaks of, such as a file that is being written.
            sync: Ask for an fsync after it.
        """
        queued = _Queued(make, time.time(), time.monotonic(), sync)
        try:
            self._queue.put_nowait(queued)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Writes what is queued, syncs and ends the writer."""
        if not self._thread.is_alive():
            return
        self._queue.put(None)
        self._thread.join(JOIN_SECONDS)

    def __enter__(self) -> Self:
        """Opens the log."""
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the log."""
        self.close()

    def _open_file(self) -> None:
        """Opens the next file; its first event tells who writes and the state so far.

        Called from `open`, and then only in the writer's thread, which numbers the
        events: a snapshot stands before all that comes after it.
        """
        name = f"a{self._attempt:02d}-{self._file_number:03d}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._folder / name, flags, 0o600)
        self._close_file()
        self._descriptor = descriptor
        self._file_number += 1
        self._size = 0
        opened = AttemptOpened(
            run_id=self._run_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=boot_id(),
            state=self._state(),
        )
        self._write(_Queued(lambda: opened, time.time(), time.monotonic(), sync=True))

    def _write(self, queued: _Queued) -> None:
        event = Event(self._seq, self._attempt, queued.wall, queued.mono, queued.make())
        line = encode_event(event)
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._seq += 1
        self._size += len(line)
        if queued.sync:
            os.fsync(self._descriptor)

    def _drain(self) -> None:
        while (queued := self._queue.get()) is not None:
            try:
                if self._size >= FILE_BYTES:
                    self._open_file()
                self._write(queued)
            except OSError as error:
                # A full disk must not stop training; the heartbeat tells of the loss.
                self.failure = error
                self.dropped += 1
        self._close_file()

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def attempts(run_dir: Path) -> int:
    """Number of attempts that the event log holds."""
    files = event_files(run_dir)
    return max((int(file.name[1:3]) for file in files), default=0)
