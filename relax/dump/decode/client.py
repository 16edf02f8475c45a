"""Decoding from another process: what the console and the headless commands call."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from relax.arguments.environment import child_environment, child_python_path
from relax.dump.decode.limits import DEFAULT_MAX_MEMORY
from relax.dump.decode.messages import (
    Decoded,
    DecodeRequest,
    Progress,
    error_from_json,
)
from relax.dump.decode.stepfiles import step_files
from relax.errors import DumpError, DumpRefused, InternalError

POLL_SECONDS: Final = 0.05
_LONGEST_COMPLAINT: Final = 300

__all__ = ["DEFAULT_MAX_MEMORY", "Decoded", "Progress", "decode"]


def decode(  # noqa: PLR0913
    path: Path | Sequence[Path],
    into: Path,
    *,
    max_memory: int = DEFAULT_MAX_MEMORY,
    time_limit: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    reward_key: str | None = None,
) -> Decoded:
    """Decodes the dumps of one step into a step record.

    A process of its own reads them, without torch and without running anything that is
    in them. ``into`` appears whole, by rename, or not at all.

    Args:
        path: A file, several files of one step, or a folder that holds one step.
        into: The record's folder, which must not exist yet.
        max_memory: Bytes that decoding may take.
        time_limit: Seconds that it may take; None: as long as it needs.
        on_progress: Called a few times a second, and when all is read.
        cancel: Decoding ends soon after it is set.
        reward_key: Key of the number where rewards are dicts.

    Raises:
        DumpMissing: A file does not exist.
        DumpTruncated: A file ends before its own structure does.
        DumpRefused: A file wants something that is no data, or more than its limits.
        DumpTooNew: A file names a format version that is not known yet.
        DumpError: The files are no dumps of one step, decoding was cancelled, or
            ``into`` exists.
    """
    files = step_files(path)
    with _built_beside(into) as work:
        request = DecodeRequest(
            paths=tuple(map(str, files)),
            into=str(work),
            reward_key=reward_key,
            max_memory=max_memory,
            time_limit=time_limit,
        )
        with _Decoder(request, cancel=cancel) as decoder:
            decoded = decoder.result(on_progress or _ignored)
    return dataclasses.replace(decoded, folder=into)


@contextlib.contextmanager
def _built_beside(into: Path) -> Iterator[Path]:
    """A folder that takes its final name when all went well, and else is removed."""
    if into.exists():
        raise DumpError("exists already", where=str(into), hint="give another folder")
    work = into.with_name(f".{into.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        work.mkdir(parents=True)
        yield work
        work.rename(into)
    except OSError as error:
        raise DumpError(
            f"the record cannot be written: {error.strerror}", where=str(into)
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ignored(_: Progress) -> None:
    pass


class _Decoder:
    """The decoder process, from its start to its end."""

    def __init__(
        self, request: DecodeRequest, *, cancel: threading.Event | None
    ) -> None:
        self._request = request
        self._files = [Path(path) for path in request.paths]
        self._cancel = cancel or threading.Event()
        limit = request.time_limit
        self._deadline = None if limit is None else time.monotonic() + limit

    def __enter__(self) -> _Decoder:
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._complaints: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "relax.entrypoints.decode"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=child_environment({**threads, "PYTHONPATH": child_python_path()}),
            # A key that interrupts the console is not meant for the decoder.
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            if stream is not None:
                stream.close()

    def result(self, on_progress: Callable[[Progress], None]) -> Decoded:
        """Hands the request over and waits for the result."""
        for message in self._messages():
            if "progress" in message:
                on_progress(Progress(**message["progress"]))
            elif "error" in message:
                raise error_from_json(message["error"], files=self._files)
            else:
                folder = Path(self._request.into)
                return Decoded.from_json(message["result"], folder=folder)
        raise self._death()

    def _messages(self) -> Iterator[Mapping[str, Any]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise InternalError("the decoder was started without its pipes")
        try:
            stdin.write(json.dumps(dataclasses.asdict(self._request)).encode() + b"\n")
            stdin.close()
        except BrokenPipeError:
            # It has ended already; why, its exit code tells.
            return
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                self._check()
                if not selector.select(POLL_SECONDS):
                    continue
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    # Progress and result may arrive in one piece: who cancels on the
                    # first gets no record.
                    self._check()
                    yield json.loads(line)

    def _check(self) -> None:
        where = str(self._files[0])
        if self._cancel.is_set():
            raise DumpError("decoding was cancelled", where=where)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise self._too_slow()

    def _too_slow(self) -> DumpRefused:
        return DumpRefused(
            f"took longer than the limit of {self._request.time_limit:g} s",
            where=str(self._files[0]),
        )

    def _death(self) -> DumpError:
        """Why the process ended without an answer."""
        code = self._process.wait()
        where = str(self._files[0])
        if code == -signal.SIGXCPU:
            return self._too_slow()
        if code == -signal.SIGKILL:
            return DumpRefused(
                "the decoder was killed while it read this file, most likely because "
                "the machine ran out of memory",
                where=where,
            )
        if code < 0:
            name = signal.Signals(-code).name
            return DumpRefused(
                f"the decoder crashed on this file ({name})",
                where=where,
                hint="nothing else was harmed; the file is damaged or hostile",
            )
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        last = lines[-1][:_LONGEST_COMPLAINT] if lines else "without a word"
        return DumpError(f"the decoder ended early: {last}", where=where)
