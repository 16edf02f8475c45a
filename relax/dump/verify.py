"""Whether a dump's files are what was written."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from relax.dump.entry import CataloguedFile, DumpEntry
from relax.dump.write.disk import hash_file

READ_BYTES: Final = 1 << 20
MOST_ENTRIES: Final = 1_000_000


def verify(
    entry: DumpEntry, *, on_progress: Callable[[int], None] | None = None
) -> list[str]:
    """Reads a dump's files and compares them with the manifest's hashes.

    Without a manifest the check sums within the archive are compared instead: they
    find damage, not a change on purpose.

    Args:
        entry: From `find_dumps`.
        on_progress: Called with the bytes read after each file.

    Returns:
        What is wrong, one sentence each; empty when nothing is.
    """
    problems = []
    done = 0
    for file in entry.files:
        problem = file.fault or _problem(file)
        if problem:
            problems.append(f"{file.path}: {problem}")
        done += file.bytes
        if on_progress is not None:
            on_progress(done)
    return problems


def _problem(file: CataloguedFile) -> str:
    try:
        if file.listed is None:
            return _damaged_entry(file.path, file.bytes)
        if hash_file(file.path) != file.listed.sha256:
            return "its sha256 is not the manifest's: it was changed or is damaged"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return ""


def _damaged_entry(path: Path, num_bytes: int) -> str:
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
                    while stream.read(READ_BYTES):
                        pass
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"it is damaged: {error}"
    except (RuntimeError, ValueError) as error:
        return f"it is not an archive that torch writes: {error}"
    return ""
