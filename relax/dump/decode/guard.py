"""The second wall: while a pickle is read, the process does nothing but read it.

The unpickler already refuses every name that is no data. Should that ever fail, audit
events still tell when something is about to be imported, run, opened or started, and
the guard stops it there. An audit hook stays for the life of its process, so only
the decoder installs it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from relax.errors import DumpRefused

_FORBIDDEN: Final = (
    "code.",
    "compile",
    "ctypes.",
    "exec",
    "fcntl.",
    "function.",
    "import",
    "marshal.",
    "mmap.",
    "open",
    "os.",
    "pty.",
    "resource.",
    "shutil.",
    "signal.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "tempfile.",
    "urllib.",
)
"""Beginnings of audit events that reading data never gives rise to."""

_READING: Final[ContextVar[bool]] = ContextVar("reading a pickle", default=False)


def install_guard() -> None:
    """Watches this process from now on, whenever `reading` is entered."""
    # Codecs are modules: the ones that texts need are loaded before the watch begins.
    for codec in ("ascii", "latin-1", "unicode_escape", "utf-8"):
        "".encode(codec)
    sys.addaudithook(_watch)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """The time in which a pickle is read."""
    token = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(token)


def _watch(event: str, _: tuple[object, ...]) -> None:
    if _READING.get() and event.startswith(_FORBIDDEN):
        raise DumpRefused(f"tries to act ({event}) while it is read")
