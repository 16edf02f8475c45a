"""Whether a dump's files are what was written."""

from __future__ import annotations

import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from relax.dump.entry import CataloguedFile, DumpEntry
from relax.dump.write.disk import hash_file
from relax.errors import DumpError

READ_BYTES: Final = 1 << 20
MOST_ENTRIES: Final = 1_000_000


def verify(
    entry: DumpEntry,
    *,
    on_progress: Callable[[int], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[str]:
    """Reads a dump's files and compares them with the manifest's hashes.

    Without a manifest the check sums within the archive are compared instead: they
    find damage, not a change on purpose.

    Args:
        entry: From `find_dumps`.
        on_progress: Called with the bytes read so far.
        cancel: Reading ends soon after it is set.

    Returns:
        What is wrong, one sentence each; empty when nothing is.

    Raises:
        DumpError: It was cancelled.
    """
    meter = _Meter(entry, on_progress or (lambda _: None), cancel or threading.Event())
    problems = []
    for file in entry.files:
        problem = file.fault or _problem(file, meter)
        if problem:
            problems.append(f"{file.path}: {problem}")
    return problems


class _Meter:
    """Counts the bytes that were read, tells of them, and stops when asked to."""

    def __init__(
        self,
        entry: DumpEntry,
        on_progress: Callable[[int], None],
        cancel: threading.Event,
    ) -> None:
        self._entry, self._on_progress, self._cancel = entry, on_progress, cancel
        self._done = 0

    def __call__(self, num_bytes: int) -> None:
        if self._cancel.is_set():
            where = str(self._entry.files[0].path)
            raise DumpError("verifying was cancelled", where=where)
        self._done += num_bytes
        self._on_progress(self._done)


def _problem(file: CataloguedFile, meter: _Meter) -> str:
    try:
        if file.listed is None:
            return _damaged_entry(file.path, file.bytes, meter)
        if hash_file(file.path, on_bytes=meter) != file.listed.sha256:
            return "its sha256 is not the manifest's: it was changed or is damaged"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return ""


def _damaged_entry(path: Path, num_bytes: int, meter: _Meter) -> str:
    """The first entry of an archive with a wrong check sum, in words; '' for none."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES:
                return f"it has {len(entries)} entries, which no dump has"
            if sum(entry.file_size for entry in entries) > num_bytes:
                return "its entries are larger than the file: it is not a plain dump"
            for entry in entries:
                with archive.open(entry) as stream:
                    while block := stream.read(READ_BYTES):
                        meter(len(block))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"it is damaged: {error}"
    except (RuntimeError, ValueError) as error:
        return f"it is not an archive that torch writes: {error}"
    return ""
