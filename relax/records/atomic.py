"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file by temporary name, fsync and rename.

    Raises:
        OSError: The disk refused; the old file, if any, is untouched.
    """
    replace_atomically(path, lambda stream: stream.write(content))


def replace_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Lets ``write`` fill a temporary file, then puts it in the place of ``path``.

    Args:
        path: The final name; its folder must exist.
        write: Fills the stream it is given.

    Raises:
        OSError: The disk refused; the old file, if any, is untouched.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
