"""The file around the pickle: torch's zip archive, or a bare pickle.

Nothing that the file says of itself is believed before it is compared with the size of
the file. Only the pickle is read as a whole; storages are read piece by piece.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from relax.errors import DumpError, DumpMissing, DumpRefused, DumpTruncated

PICKLE_NAME: Final = "data.pkl"
BUFFER_BYTES: Final = 1 << 20

_ZIP_MAGIC: Final = b"PK\x03\x04"
_LEGACY_MAGIC: Final = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_LOCAL_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
_ENCRYPTED: Final = 1
_MOST_ENTRIES: Final = 4_000_000


class Bytes(Protocol):
    """A run of bytes of a file that can be read from its beginning."""

    name: str
    size: int
    damaged: bool

    def open(self) -> io.BufferedReader:
        """A stream over the bytes."""
        ...

    def read(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on; fewer where they end."""
        ...


class _Checked:
    """Compares a checksum once all bytes have passed in order."""

    def __init__(self, *, size: int, crc: int | None) -> None:
        self.size = size
        self.damaged = False
        self._expected = crc

    def start(self) -> Callable[[memoryview | bytes], None]:
        """What a new stream calls with each piece that passes."""
        crc, passed = 0, 0

        def update(data: memoryview | bytes) -> None:
            nonlocal crc, passed
            crc, passed = zlib.crc32(data, crc), passed + len(data)
            if passed == self.size and crc != self._expected:
                self.damaged = self._expected is not None

        return update


class _Window(io.RawIOBase):
    """A part of a file as a stream of its own."""

    def __init__(
        self,
        descriptor: int,
        *,
        start: int,
        size: int,
        passed: Callable[[memoryview | bytes], None],
    ) -> None:
        self._descriptor = descriptor
        self._next = start
        self._end = start + size
        self._passed = passed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)[: max(0, self._end - self._next)]
        count = os.preadv(self._descriptor, [view], self._next) if view else 0
        self._next += count
        self._passed(view[:count])
        return count


class _Inflated(io.RawIOBase):
    """A deflated part of a file as a stream of what it inflates to."""

    def __init__(
        self,
        raw: io.BufferedReader,
        *,
        size: int,
        passed: Callable[[memoryview | bytes], None],
    ) -> None:
        self._raw = raw
        self._passed = passed
        self._left = size
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._left)
        if not wanted:
            return 0
        data = b""
        while not data:
            packed = self._inflate.unconsumed_tail or self._raw.read(BUFFER_BYTES)
            try:
                data = self._inflate.decompress(packed, wanted)
            except zlib.error as error:
                raise DumpTruncated(
                    f"its compressed data are damaged ({error})"
                ) from error
            if not packed and not data:
                return 0
        self._left -= len(data)
        buffer[: len(data)] = data
        self._passed(data)
        return len(data)


class StoredEntry(_Checked):
    """Bytes that lie in the file as they are.

    Attributes:
        damaged: Whether they were all read and do not have their checksum.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        name: str,
        start: int,
        size: int,
        crc: int | None = None,
    ) -> None:
        super().__init__(size=size, crc=crc)
        self.name = name
        self._descriptor = descriptor
        self._start = start

    def open(self) -> io.BufferedReader:
        """A stream over the bytes."""
        window = _Window(
            self._descriptor, start=self._start, size=self.size, passed=self.start()
        )
        return io.BufferedReader(window, BUFFER_BYTES)

    def read(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on; fewer where they end."""
        size = max(0, min(size, self.size - start))
        data = os.pread(self._descriptor, size, self._start + start)
        if len(data) == self.size:
            self.start()(data)
        return data


class DeflatedEntry(_Checked):
    """Bytes that lie in the file compressed; they are inflated anew at each reading.

    Attributes:
        damaged: Whether they were all read and do not have their checksum.
    """

    def __init__(self, packed: StoredEntry, *, size: int, crc: int) -> None:
        super().__init__(size=size, crc=crc)
        self.name = packed.name
        self._packed = packed

    def open(self) -> io.BufferedReader:
        """A stream over the inflated bytes, at most as many as were declared."""
        inflated = _Inflated(self._packed.open(), size=self.size, passed=self.start())
        return io.BufferedReader(inflated, BUFFER_BYTES)

    def read(self, start: int, size: int) -> bytes:
        """``size`` inflated bytes from ``start`` on; fewer where they end."""
        stream = self.open()
        while start:
            skipped = len(stream.read(min(start, BUFFER_BYTES)))
            if not skipped:
                return b""
            start -= skipped
        return stream.read(size)


class Archive:
    """A dump file, opened; use it as a context manager.

    Args:
        path: The file.

    Attributes:
        size: Its size.
        pickle: The pickle within.

    Raises:
        DumpMissing: There is no such file.
        DumpTruncated: It ends before its own structure does.
        DumpRefused: It is of a kind that is not read.
        DumpError: It is no dump at all, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Without O_NONBLOCK a named pipe would be waited for.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(path, flags)
        except FileNotFoundError as error:
            raise DumpMissing("there is no such file", where=str(path)) from error
        except OSError as error:
            raise DumpError(
                f"cannot be read: {error.strerror}", where=str(path)
            ) from error
        self._storages: Mapping[str, zipfile.ZipInfo] = {}
        self._prefix = ""
        self._read: list[Bytes] = []
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DumpError("is no file", where=str(path))
            self.size = status.st_size
            self.pickle, self.big_endian = self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; reading from it is over."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def storage(self, key: str) -> Bytes:
        """The bytes of a storage.

        Args:
            key: As the pickle names it.

        Raises:
            DumpTruncated: The file does not hold it.
        """
        info = self._storages.get(f"{self._prefix}data/{key}")
        if info is None:
            raise self._truncated(f"the storage {key[:80]!r} of a tensor is missing")
        entry = self._entry(info)
        self._read.append(entry)
        return entry

    @property
    def damaged(self) -> tuple[str, ...]:
        """Names of entries that were read whole and do not have their checksum."""
        entries = (self.pickle, *self._read)
        return tuple(entry.name for entry in entries if entry.damaged)

    def _open(self) -> tuple[Bytes, bool]:
        head = os.pread(self._descriptor, 512, 0)
        if not head:
            raise self._truncated("the file is empty")
        if head.startswith(_ZIP_MAGIC):
            return self._open_zip()
        if head.startswith(_LEGACY_MAGIC) or head[257:262] == b"ustar":
            raise DumpRefused(
                "is in the format torch wrote before 1.6",
                where=str(self.path),
                hint="load it with torch and save it again",
            )
        if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
            name = self.path.name
            entry = StoredEntry(self._descriptor, name=name, start=0, size=self.size)
            return entry, False
        raise DumpError(
            f"is neither a torch file nor a pickle; it begins with {head[:8]!r}",
            where=str(self.path),
        )

    def _open_zip(self) -> tuple[Bytes, bool]:
        try:
            with open(self._descriptor, "rb", closefd=False) as stream:
                infos = zipfile.ZipFile(stream).infolist()
        except (zipfile.BadZipFile, struct.error, ValueError, OSError) as error:
            raise self._truncated(
                f"has no readable zip directory at its end ({error})"
            ) from error
        except NotImplementedError as error:
            raise DumpRefused(str(error), where=str(self.path)) from error
        if len(infos) > _MOST_ENTRIES:
            raise DumpRefused(f"has {len(infos)} zip entries", where=str(self.path))
        pickles = [
            info
            for info in infos
            if info.filename.rpartition("/")[2] == PICKLE_NAME
            and info.filename.count("/") <= 1
        ]
        if len(pickles) != 1:
            raise DumpError(
                f"is a zip file with {len(pickles)} entries named {PICKLE_NAME}, "
                "not one as torch writes them",
                where=str(self.path),
            )
        self._prefix = pickles[0].filename.removesuffix(PICKLE_NAME)
        self._storages = {info.filename: info for info in infos}
        order = self._storages.get(f"{self._prefix}byteorder")
        big = order is not None and self._entry(order).read(0, 8).strip() == b"big"
        return self._entry(pickles[0]), big

    def _entry(self, info: zipfile.ZipInfo) -> Bytes:
        header = os.pread(self._descriptor, _LOCAL_HEADER.size, info.header_offset)
        if len(header) < _LOCAL_HEADER.size:
            raise self._truncated(f"the zip entry {info.filename!r} lies outside it")
        magic, *_, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        start = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        if magic != _ZIP_MAGIC or start + info.compress_size > self.size:
            raise self._truncated(f"the zip entry {info.filename!r} lies outside it")
        if info.flag_bits & _ENCRYPTED:
            raise DumpRefused("is encrypted", where=str(self.path))
        stored = info.compress_type == zipfile.ZIP_STORED
        packed = StoredEntry(
            self._descriptor,
            name=info.filename,
            start=start,
            size=info.compress_size,
            crc=info.CRC if stored else None,
        )
        if info.compress_type == zipfile.ZIP_DEFLATED:
            return DeflatedEntry(packed, size=info.file_size, crc=info.CRC)
        if not stored:
            raise DumpRefused(
                f"is compressed by method {info.compress_type} of zip",
                where=str(self.path),
            )
        return packed

    def _truncated(self, what: str) -> DumpTruncated:
        return DumpTruncated(
            what,
            where=str(self.path),
            hint="it is cut short or damaged: copy or dump it again",
        )
