"""The zip archive that ``torch.load`` opens, written front to back without torch.

    archive/data.pkl     the pickle
    archive/byteorder    little
    archive/data/0 …     the bytes of each storage
    archive/version      3

Entries are stored, not compressed, begin at multiples of 64 bytes (so that storages can
be mapped), and give size and CRC behind their bytes and in the directory: nothing is
patched afterwards, so hashing needs no second reading. Sizes and offsets beyond 4 GiB
are written as ZIP64. No time stamp: the same content gives the same bytes.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

ARCHIVE: Final = "archive"
ALIGNMENT: Final = 64
CHUNK_BYTES: Final = 1 << 20
LIMIT_32: Final = 0xFFFFFFFF
LIMIT_16: Final = 0xFFFF

_SIZES_FOLLOW_UTF8: Final = 0x0808
_FIRST_OF_1980: Final = 0x21
_PADDING_ID: Final = 0x4246
_ZIP64_ID: Final = 0x0001
_LOCAL_BYTES: Final = 30
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DIRECTORY: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")

Sink = Callable[[bytes | bytearray | memoryview], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    offset: int
    size: int
    crc: int


class TorchZip:
    """Writes the archive to a sink that takes bytes in order.

    Args:
        sink: Takes the next bytes of the file.
        limit: Sizes and offsets from here on are written as ZIP64; for tests.
    """

    def __init__(self, sink: Sink, *, limit: int = LIMIT_32) -> None:
        self._sink = sink
        self._limit = limit
        self._offset = 0
        self._entries: list[_Entry] = []

    @contextlib.contextmanager
    def entry(self, name: str) -> Iterator[Sink]:
        """Writes one entry: what the block gives to the sink that it is handed.

        Args:
            name: Name within the archive, e.g. ``data.pkl``.
        """
        full = f"{ARCHIVE}/{name}".encode()
        start = self._offset
        self._put(_local_header(full, offset=start))
        stream = _Stream(self._put)
        yield stream.write
        stream.flush()
        self._entries.append(_Entry(full, start, stream.size, stream.crc))
        # The first of the three values that may need 64 bits decides the form.
        form = "<4sLQQ" if stream.size >= self._limit else "<4s3L"
        self._put(
            struct.pack(form, b"PK\x07\x08", stream.crc, stream.size, stream.size)
        )

    def close(self) -> None:
        """Writes the trailing entries and the directory."""
        for name, content in (("byteorder", b"little"), ("version", b"3\n")):
            with self.entry(name) as write:
                write(content)
        start = self._offset
        for entry in self._entries:
            self._put(self._directory_entry(entry))
        self._put(self._end(start=start, size=self._offset - start))

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._sink(data)
        self._offset += len(data)

    def _directory_entry(self, entry: _Entry) -> bytes:
        wide = [v for v in (entry.size, entry.offset) if v >= self._limit]
        size = LIMIT_32 if entry.size >= self._limit else entry.size
        offset = LIMIT_32 if entry.offset >= self._limit else entry.offset
        if entry.size >= self._limit:
            wide.insert(0, entry.size)
        extra = b""
        if wide:
            extra = struct.pack(f"<2H{len(wide)}Q", _ZIP64_ID, 8 * len(wide), *wide)
        head = _DIRECTORY.pack(
            b"PK\x01\x02", 45 if wide else 20, 45 if wide else 20, _SIZES_FOLLOW_UTF8,
            0, 0, _FIRST_OF_1980, entry.crc, size, size, len(entry.name), len(extra),
            0, 0, 0, 0, offset,
        )  # fmt: skip
        return head + entry.name + extra

    def _end(self, *, start: int, size: int) -> bytes:
        count = len(self._entries)
        end_64 = _END_64.pack(
            b"PK\x06\x06", _END_64.size - 12, 45, 45, 0, 0, count, count, size, start
        )
        locator = _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
        few = min(count, LIMIT_16)
        place = LIMIT_32 if start >= self._limit else start
        end = _END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, LIMIT_32), place, 0)
        return end_64 + locator + end


class _Stream:
    """Gathers small writes; counts bytes and keeps the CRC of one entry."""

    def __init__(self, put: Sink) -> None:
        self._put = put
        self._waiting = bytearray()
        self.size = 0
        self.crc = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._waiting += data
        if len(self._waiting) >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self.crc = zlib.crc32(self._waiting, self.crc)
            self.size += len(self._waiting)
            self._put(self._waiting)
            self._waiting = bytearray()


def _local_header(name: bytes, *, offset: int) -> bytes:
    """A header padded so that the entry's bytes begin at a multiple of 64."""
    bare = offset + _LOCAL_BYTES + len(name) + 4
    padding = -bare % ALIGNMENT
    extra = struct.pack("<2H", _PADDING_ID, padding) + bytes(padding)
    head = _LOCAL.pack(
        b"PK\x03\x04", 20, _SIZES_FOLLOW_UTF8, 0, 0, _FIRST_OF_1980, 0, 0, 0,
        len(name), len(extra),
    )  # fmt: skip
    return head + name + extra
