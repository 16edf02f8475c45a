"""Decoded dumps that are kept, so that opening one again shows it at once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from relax.arguments.environment import cache_home
from relax.dump.decode.client import decode
from relax.dump.decode.messages import RESULT_NAME, Decoded
from relax.dump.decode.stepfiles import step_files
from relax.errors import DumpError
from relax.records.schema import SCHEMA_VERSION

DECODER_VERSION: Final = 1
"""Raised when the same dump is decoded to something else than before."""

MOST_CACHED_BYTES: Final = 16 << 30

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


def decode_cached(
    path: Path | Sequence[Path], *, cache_dir: Path | None = None, **options: Any
) -> Decoded:
    """As `decode`, or what it gave before, if the files have not changed since.

    Files are known by path, size and time of their last change. The cache holds 16 GiB
    at most; what was not opened for the longest time goes first.

    Args:
        path: A file, several files of one step, or a folder that holds one step.
        cache_dir: None: ``relax/decoded`` in the user's cache folder.
        options: Those of `decode`.

    Raises:
        DumpError: As `decode`.
    """
    files = step_files(path)
    cache = cache_home() / "relax" / "decoded" if cache_dir is None else cache_dir
    into = cache / _name(files, reward_key=options.get("reward_key"))
    kept = _read(into)
    if kept is not None:
        os.utime(into)
        return kept
    _make_room(cache)
    try:
        return decode(files, into, **options)
    except DumpError:
        # Another process may have put it there in the meantime.
        kept = _read(into)
        if kept is None:
            raise
        return kept


def _name(files: Sequence[Path], *, reward_key: str | None) -> str:
    facts = [f"{DECODER_VERSION} {SCHEMA_VERSION} {reward_key!r}"]
    for file in files:
        status = file.stat()
        facts.append(f"{file.resolve()} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode("utf-8", "surrogateescape"))
    stem = _NOT_IN_NAMES.sub("-", files[0].stem)[:40]
    return f"{stem}-{digest.hexdigest()[:16]}"


def _read(folder: Path) -> Decoded | None:
    try:
        document = json.loads((folder / RESULT_NAME).read_bytes())
        return Decoded.from_json(document, folder=folder)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        # Damaged: it is made again.
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _make_room(cache: Path) -> None:
    """Removes the records that were not opened for the longest time."""
    if not cache.is_dir():
        return
    folders = [
        (folder.stat().st_mtime, folder)
        for folder in cache.iterdir()
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    left = MOST_CACHED_BYTES
    for _, folder in sorted(folders, reverse=True):
        left -= sum(file.stat().st_size for file in folder.iterdir())
        if left < 0:
            shutil.rmtree(folder, ignore_errors=True)
