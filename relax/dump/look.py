"""A cheap look at a dump: a few kilobytes at both ends, nothing unpickled.

The first entry of the archive is the pickle, and the first keys in it (`rollout_id`,
`rank`, `samples` …) tell the kinds of dump apart. The end of the archive tells whether
the file is whole.
"""

from __future__ import annotations

import os
import pickletools
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 64 * 1024 + 22
MOST_OPCODES: Final = 400

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_STORED: Final = 0
_INTEGERS: Final = ("BININT", "BININT1", "BININT2", "LONG1")
"""Opcodes of an integer that is a value, unlike the numbers of the memo."""

FORMATS: Final = {
    "rollout": "rollout (Relax, slime, miles)",
    "train-samples": "train, by sample (Relax)",
    "train-columns": "train, by column (slime v1, miles)",
    "train-v2": "train, all ranks (slime v2)",
    "unknown": "not known by a look",
}
"""What a look can tell, and its name for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a file told.

    Attributes:
        layout: A key of `FORMATS`.
        rollout_id: As the file says; None when it was not seen.
        rank: As the file says; None when it was not seen.
        num_bytes: Size of the file.
        fault: Why it is not whole; '' when it is, as far as a look tells.
    """

    layout: str = "unknown"
    rollout_id: int | None = None
    rank: int | None = None
    num_bytes: int = 0
    fault: str = ""

    @property
    def kind(self) -> str:
        """``rollout``, ``train``, or '' when it is not known."""
        return "" if self.layout == "unknown" else self.layout.partition("-")[0]


@dataclass(slots=True)
class _FirstKeys:
    """The texts that a pickle begins with, and the numbers behind them."""

    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


def look(path: Path) -> Look:
    """Looks at a file.

    Raises:
        OSError: It cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Look(fault="it is not a regular file")
        size = status.st_size
        head = os.pread(descriptor, HEAD_BYTES, 0)
        tail = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
    finally:
        os.close(descriptor)
    if not head.startswith(b"PK\x03\x04"):
        fault = "it is empty" if not head else "it is not a zip archive of torch"
        return Look(num_bytes=size, fault=fault)
    start = _pickle_start(head)
    keys = _first_keys(head[start:]) if start else _FirstKeys()
    return Look(
        layout=_layout(keys.texts),
        rollout_id=keys.numbers.get("rollout_id"),
        rank=keys.numbers.get("rank"),
        num_bytes=size,
        fault=_end_fault(tail, size),
    )


def _pickle_start(head: bytes) -> int:
    """Where the first entry's bytes begin; 0 when it is not a stored pickle."""
    if len(head) < _LOCAL.size:
        return 0
    fields = _LOCAL.unpack_from(head)
    method, name_bytes, extra_bytes = fields[3], fields[9], fields[10]
    name = head[_LOCAL.size : _LOCAL.size + name_bytes]
    if method != _STORED or not name.endswith(b"/data.pkl"):
        return 0
    return int(_LOCAL.size + name_bytes + extra_bytes)


def _first_keys(opcodes: bytes) -> _FirstKeys:
    """Reads opcodes without carrying them out, until the first list of content."""
    keys = _FirstKeys()
    try:
        for count, (opcode, value, _) in enumerate(pickletools.genops(opcodes)):
            if count > MOST_OPCODES or keys.texts[-1:] in (["samples"], ["dp_shards"]):
                break
            if isinstance(value, str):
                keys.texts.append(value)
            elif opcode.name in _INTEGERS and keys.texts and isinstance(value, int):
                keys.numbers.setdefault(keys.texts[-1], value)
    except (ValueError, OverflowError, struct.error, LookupError):
        # Cut short by the look itself, or not a pickle: what was seen is what is known.
        return keys
    return keys


def _layout(texts: list[str]) -> str:
    if not texts or texts[0] not in ("rollout_id", "format_version", "rank", "samples"):
        return "unknown"
    early = texts[:8]
    if "format_version" in early:
        return "train-v2"
    if "rollout_data" in early:
        return "train-columns"
    if "samples" in early:
        return "train-samples" if "rank" in early else "rollout"
    return "unknown"


def _end_fault(tail: bytes, size: int) -> str:
    """Why an archive of this size cannot end like this; '' when it can."""
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or place + _END.size > len(tail):
        return "it ends before its directory does: it is truncated, or being written"
    fields = _END.unpack_from(tail, place)
    length, start = fields[5], fields[6]
    end = size - len(tail) + place
    locator = place - _LOCATOR.size
    wide = locator - _END_64.size
    if wide >= 0 and tail[locator : locator + 4] == b"PK\x06\x07":
        length, start = _END_64.unpack_from(tail, wide)[8:10]
        end = size - len(tail) + wide
    if start + length > end:
        return "its directory does not fit into the file: it is damaged"
    return ""
