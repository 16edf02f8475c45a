"""Several files that appear together, or not at all.

open        each file under a temporary name
finish      each file whole and on the disk
check       no final name is taken by another content
publish     rename, in the order of opening: the manifest was opened last
undo        if a rename fails: new names go, replaced files come back
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from relax.dump.write.disk import (
    TEMPORARY_PREFIX,
    NewFile,
    disk_errors,
    hash_file,
    sync_folder,
)
from relax.dump.write.written import WrittenFile
from relax.errors import DumpError


@dataclass(frozen=True, kw_only=True)
class _Published:
    """A final name, and the file that had it before under another one."""

    path: Path
    before: Path | None
    lock: int | None


class DumpTransaction:
    """Files of one dump on their way to their final names; a context manager.

    Whatever is not committed when the block ends is removed.

    Args:
        overwrite: Replace files that exist with another content.
        on_progress: Called with the bytes written so far, over all files.
    """

    def __init__(
        self,
        *,
        overwrite: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._overwrite = overwrite
        self._on_progress = on_progress
        self._files: list[NewFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.discard()

    def file(self, path: Path, *, replaces: bool = False) -> NewFile:
        """Opens one more file.

        Args:
            path: Final name.
            replaces: It may take the place of another content in any case, as a newer
                manifest does.

        Raises:
            DumpError: The disk refused, or the name is taken twice.
        """
        if any(path == file.path for file in self._files):
            raise DumpError("two files of one dump have the same name", where=str(path))
        before = sum(file.num_bytes for file in self._files)
        report = self._on_progress

        def progress(num_bytes: int) -> None:
            if report is not None:
                report(before + num_bytes)

        file = NewFile(path, replaces=replaces, on_progress=progress)
        self._files.append(file)
        return file

    def commit(self) -> tuple[WrittenFile, ...]:
        """Gives all files their final names.

        A name that exists with the same content is left as it is.

        Returns:
            The files in the order of opening.

        Raises:
            DumpError: A name is taken by another content, or the disk refused; nothing
                has changed then.
        """
        written = tuple(file.finish() for file in self._files)
        new = [file for file in self._files if self._is_new(file)]
        published: list[_Published] = []
        try:
            for file in new:
                if file is new[-1]:
                    _sync_folders(new[:-1])
                published.append(_set_aside(file.path))
                file.publish()
            _sync_folders(new)
        except BaseException:
            _undo(published)
            raise
        _forget(published)
        return written

    def _is_new(self, file: NewFile) -> bool:
        """Whether the file is to be published; False when it is there already."""
        with disk_errors(file.path):
            if not file.path.exists():
                return True
            here = file.finish()
            if (
                file.path.is_file()
                and file.path.stat().st_size == here.bytes
                and hash_file(file.path) == here.sha256
            ):
                return False
        if not file.path.is_file():
            raise DumpError("there is no file of this name", where=str(file.path))
        if self._overwrite or file.replaces:
            return True
        raise DumpError(
            "a dump with another content is there already",
            where=str(file.path),
            hint="dump elsewhere, or replace it by --overwrite-dumps",
        )


def _set_aside(path: Path) -> _Published:
    """Keeps what has this name now under a second one, until the new file is safe."""
    with disk_errors(path):
        if not path.exists():
            return _Published(path=path, before=None, lock=None)
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:8]}-before-{path.name}"
        before = path.with_name(name)
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _link_or_copy(path, before)
        except OSError:
            os.close(lock)
            raise
        return _Published(path=path, before=before, lock=lock)


def _link_or_copy(path: Path, second: Path) -> None:
    try:
        os.link(path, second)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system has hard links.
        shutil.copyfile(path, second)


def _undo(published: list[_Published]) -> None:
    """Brings the final names back to what they were, as far as the disk lets us."""
    for name in reversed(published):
        with contextlib.suppress(OSError):
            if name.before is not None:
                name.before.replace(name.path)
            else:
                name.path.unlink(missing_ok=True)
    _forget(published)


def _forget(published: list[_Published]) -> None:
    for name in published:
        # What stays behind under a temporary name is removed by the next writer.
        with contextlib.suppress(OSError):
            if name.before is not None:
                name.before.unlink(missing_ok=True)
            if name.lock is not None:
                os.close(name.lock)


def _sync_folders(files: list[NewFile]) -> None:
    for folder in {file.path.parent for file in files}:
        with disk_errors(folder):
            sync_folder(folder)
