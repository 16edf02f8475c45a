"""Finding the few lines that matter in a log of any size.

The file is read in blocks of some megabytes; one regular expression (RE2, by Arrow) is
tried on all lines of a block at once, and only the lines it hits become Python objects.
A file that still grows is followed by calling `LogScanner.poll` again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relax.errors import DumpError, DumpMissing

BLOCK_BYTES: Final = 4 << 20
LONGEST_LINE: Final = 1 << 20
"""Of a longer line only this much of its beginning is looked at."""

_NEWLINE: Final = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that the expression hit.

    Attributes:
        line: Its number, from 1.
        offset: Where it begins, in bytes.
        raw: Its bytes without the newline.
    """

    line: int
    offset: int
    raw: bytes


class LogScanner:
    """Reads a log from its beginning, block by block; use it as a context manager.

    Args:
        path: The log.
        expression: Regular expression in the syntax of RE2.

    Attributes:
        position: Bytes read so far.
        lines: Lines read so far.

    Raises:
        DumpMissing: There is no such file.
        DumpError: It cannot be read.
    """

    def __init__(self, path: Path, expression: str) -> None:
        self.path = path
        self.position = 0
        self.lines = 0
        self._expression = expression
        self._rest = b""
        self._rest_offset = 0
        self._skipping = False
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise DumpMissing("there is no such file", where=str(path)) from error
        except OSError as error:
            raise DumpError(
                f"cannot be read: {error.strerror}", where=str(path)
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def size(self) -> int:
        """Bytes that the file has now."""
        return os.fstat(self._descriptor).st_size

    @property
    def replaced(self) -> bool:
        """Whether the path leads to another file by now, or this one was cut."""
        mine = os.fstat(self._descriptor)
        if mine.st_size < self.position:
            return True
        try:
            there = self.path.stat()
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def poll(self) -> list[Hit] | None:
        """The hits in the next block.

        Returns:
            Hits in order; None when nothing more is there yet.

        Raises:
            DumpError: The file cannot be read any more.
        """
        try:
            data = os.pread(self._descriptor, BLOCK_BYTES, self.position)
        except OSError as error:
            raise DumpError(
                f"cannot be read: {error.strerror}", where=str(self.path)
            ) from error
        if not data:
            return None
        self.position += len(data)
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return []
            self._skipping = False
            self._rest_offset = self.position - len(data) + end + 1
            self.lines += 1
            data = data[end + 1 :]
        return self._take(data)

    def finish(self) -> list[Hit]:
        """The hits in a last line that has no newline; call it at the very end."""
        rest, self._rest = self._rest, b""
        if not rest:
            return []
        return self._hits(rest + b"\n", self._rest_offset)

    def _take(self, data: bytes) -> list[Hit]:
        block, offset = self._rest + data, self._rest_offset
        end = block.rfind(b"\n") + 1
        self._rest, self._rest_offset = block[end:], offset + end
        hits = self._hits(block[:end], offset) if end else []
        if len(self._rest) > LONGEST_LINE:
            # The rest of this line is skipped; its newline is counted when it comes.
            head, self._rest = self._rest[:LONGEST_LINE], b""
            found = self._hits(head + b"\n", self._rest_offset)
            self.lines -= 1
            self._skipping = True
            hits += found
        return hits

    def _hits(self, block: bytes, offset: int) -> list[Hit]:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
        borders = np.empty(ends.size + 1, np.int32)
        borders[0] = 0
        np.add(ends, 1, out=borders[1:], casting="unsafe")
        lines = pa.Array.from_buffers(
            pa.binary(), ends.size, [None, pa.py_buffer(borders), pa.py_buffer(block)]
        )
        mask = pc.match_substring_regex(lines, self._expression)
        found = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        first = self.lines + 1
        self.lines += ends.size
        return [
            Hit(
                line=first + int(row),
                offset=offset + int(borders[row]),
                raw=block[int(borders[row]) : int(ends[row])],
            )
            for row in found
        ]
