"""New files: under a temporary name until they are whole, hashed while written.

A temporary file is locked (``flock``) by its writer for as long as that lives. One that
nobody holds was left by a writer that was killed, and the next writer in its folder
removes it. That also holds where process numbers mean nothing: in containers, and on
file systems shared by several hosts that keep locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from relax.dump.write.written import WrittenFile
from relax.errors import DumpError

TEMPORARY_PREFIX: Final = ".tmp-relax-"
HASH_BYTES: Final = 1 << 20

_WORDS: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EIO: "the disk reported an error",
    errno.ESTALE: "the network file system lost the file",
}
_NEEDS_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, path: Path) -> DumpError:
    """A refusal of the disk as one sentence about the dump at ``path``."""
    words = _WORDS.get(error.errno or 0, error.strerror or str(error))
    hint = "earlier dumps are untouched; "
    if error.errno in _NEEDS_SPACE:
        hint += "free space, bound the dumps by --dump-max-bytes, or dump elsewhere"
    else:
        hint += "give a place that can be written"
    return DumpError(f"the dump was not written: {words}", where=str(path), hint=hint)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns what the disk refuses within into a `DumpError` about ``path``."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


class NewFile:
    """A file that is being written under a temporary name in its final folder.

    Args:
        path: Final name; its folder is made when missing.
        replaces: Whether it may take the place of another content.
        on_progress: Called with the bytes written so far.

    Raises:
        DumpError: The folder cannot be made or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        replaces: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self.path = path
        self.replaces = replaces
        self.num_bytes = 0
        self._on_progress = on_progress
        self._hash = hashlib.sha256()
        self._written: WrittenFile | None = None
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(path.parent)
            self.temporary, self._descriptor = _locked(path)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes.

        Raises:
            DumpError: The disk refused.
        """
        view = memoryview(data)
        self._hash.update(view)
        with disk_errors(self.path):
            while view:
                count = os.write(self._descriptor, view)
                self.num_bytes += count
                view = view[count:]
        if self._on_progress is not None:
            self._on_progress(self.num_bytes)

    def finish(self) -> WrittenFile:
        """Brings the bytes to the disk; nothing is appended afterwards.

        Raises:
            DumpError: The disk refused.
        """
        if self._written is None:
            with disk_errors(self.path):
                os.fsync(self._descriptor)
            self._written = WrittenFile(
                path=self.path, bytes=self.num_bytes, sha256=self._hash.hexdigest()
            )
        return self._written

    def publish(self) -> None:
        """Gives the file its final name.

        Raises:
            DumpError: The disk refused.
        """
        with disk_errors(self.path):
            self.temporary.replace(self.path)
        self._close()

    def discard(self) -> None:
        """Removes the temporary file, if it still has its temporary name."""
        if self._descriptor >= 0:
            # A folder that became read-only keeps it; the next writer tries again.
            with contextlib.suppress(OSError):
                self.temporary.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _locked(path: Path) -> tuple[Path, int]:
    """A new temporary file for ``path``, held by this process."""
    while True:
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:8]}-{path.name}"
        temporary = path.with_name(name)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Between its birth and the lock another writer may have taken it for abandoned.
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def remove_abandoned(folder: Path) -> list[Path]:
    """Removes temporary files whose writer is dead.

    Returns:
        What was removed.
    """
    removed = []
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        # Somebody else may be removing it, or it may not be ours to remove.
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                    removed.append(path)
            finally:
                os.close(descriptor)
    return removed


def hash_file(path: Path, *, on_bytes: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file's bytes, in hexadecimal.

    Args:
        path: The file.
        on_bytes: Called with the size of each block that was read.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BYTES):
            digest.update(block)
            if on_bytes is not None:
                on_bytes(len(block))
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk.

    Raises:
        OSError: The disk refused.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
