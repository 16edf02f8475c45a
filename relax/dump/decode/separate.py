r"""Samples one by one: a pickle cut into one pickle a sample.

A pickled list of dicts is a row of stretches that all begin alike: an empty dict, then
the first key, which from the second sample on is a reference to the first sample's key.

    }q\x00(X..rollout_id q\x01 K\x05 X..samples q\x02 ]q\x03(  }q\x04(X..index q\x05 …
    head: everything up to the first sample                    first sample

    }r....(h\x05 …        }r....(h\x05 …        e u .
    second sample         third                tail: closes the list and the dict

Each stretch goes to one unpickler, which keeps its memo, between a few opcodes that
make a list around it, and it counts as a sample only if exactly one dict comes out in
that list. A cut that hits the middle of an opcode's argument can not pass: the argument
then swallows the closing opcodes, and the pickle ends early. Whatever does not pass
raises `NotSeparable`, and the caller reads the whole pickle at once.
"""

from __future__ import annotations

import contextlib
import io
import pickletools
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from relax.dump.decode.archive import BUFFER_BYTES, Archive
from relax.dump.decode.unpickle import DataUnpickler, PickleFeed, pickle_errors
from relax.errors import DumpError, DumpRefused

HEAD_BYTES: Final = 1 << 16
MEMO_BYTES: Final = 128 << 20
RECENT_SAMPLES: Final = 64
"""Samples whose texts a later sample may refer to after that."""

_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_TEXTS: Final = frozenset({"BINUNICODE", "SHORT_BINUNICODE"})
_PUT_PATTERN: Final = rb"(?:q.|r....)"
_PUT_LONG: Final = b"r"
_LONGEST_PATTERN: Final = 256
# Two patterns: one that begins with fixed bytes is searched for ten times as fast.
_PUTS_OF_LETTERS: Final = tuple(
    re.compile(text + rb"(?:q(.)|r(....))", re.DOTALL)
    for text in (rb"X\x01\0\0\0[\0-\x7f]", rb"X\x02\0\0\0[\xc2\xc3].")
)


class NotSeparable(Exception):
    """The samples of this pickle have to be read at once."""


class _Spent:
    """Stands in the lists of samples that were let go."""

    __slots__ = ()


SPENT: Final = _Spent()


class _Head:
    """The beginning of the pickle: where the first sample starts, and how they look.

    Args:
        data: The first bytes of the pickle.

    Attributes:
        end: Where the first sample begins.
        before_samples: Where the key ``samples`` begins.
        marked: Whether dict and list collect their items behind marks.
        pattern: What every later sample begins with.
        has_puts: Whether samples are remembered in the memo.

    Raises:
        NotSeparable: It does not look as usual.
    """

    def __init__(self, data: bytes) -> None:
        self._operations = self._read(data)
        self.dict_marked = self._skip_to_samples()
        self._next("EMPTY_LIST")
        self._optional(_PUTS)
        self.list_marked = self._optional({"MARK"}) is not None
        self.end = self._next("EMPTY_DICT")[2]
        self.has_puts = self._optional(_PUTS) is not None
        marked = self._optional({"MARK"}) is not None
        name, key, start = self._next(*_TEXTS)
        del name, key
        put = self._optional(_PUTS)
        end = self._operations[0][2] if self._operations else None
        if end is None:
            raise NotSeparable
        if put is None:
            first = re.escape(data[start:end])
        elif put[0] == "BINPUT":
            first = re.escape(b"h" + bytes([put[1]]))
        else:
            first = re.escape(b"j" + int(put[1]).to_bytes(4, "little"))
        self.pattern = re.compile(
            rb"\}"
            + (_PUT_PATTERN if self.has_puts else b"")
            + (rb"\(" if marked else b"")
            + first,
            re.DOTALL,
        )

    @staticmethod
    def _read(data: bytes) -> list[tuple[str, Any, int]]:
        """Opcode, argument and place, as far as the data reach."""
        found: list[tuple[str, Any, int]] = []
        # Where the data were cut off, an error ends the opcodes.
        with contextlib.suppress(ValueError, IndexError, UnicodeDecodeError):
            found.extend(
                (operation.name, argument, place or 0)
                for operation, argument, place in pickletools.genops(io.BytesIO(data))
            )
        return found

    def _skip_to_samples(self) -> bool:
        name, version, _ = self._next("PROTO")
        del name
        if version not in (2, 3):
            raise NotSeparable
        self._next("EMPTY_DICT")
        self._optional(_PUTS)
        marked = self._optional({"MARK"}) is not None
        while self._operations:
            name, argument, place = self._operations.pop(0)
            if name in _TEXTS and argument == "samples":
                self.before_samples = place
                self._optional(_PUTS)
                return marked
        raise NotSeparable

    def _next(self, *names: str) -> tuple[str, Any, int]:
        if not self._operations or self._operations[0][0] not in names:
            raise NotSeparable
        return self._operations.pop(0)

    def _optional(self, names: Any) -> tuple[str, Any, int] | None:
        if self._operations and self._operations[0][0] in names:
            return self._operations.pop(0)
        return None


class SeparateSamples:
    """The samples of a pickle, in order, each read when it is asked for.

    Args:
        archive: The file.
        advance: Told how many bytes of the pickle were read.
        memo_bytes: Pickle bytes after which the memo is thinned out.

    Attributes:
        keys: What precedes the samples in the top dict.
        tail: What follows them; filled when the last sample was read.

    Raises:
        NotSeparable: The pickle is not of the usual form.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        advance: Callable[[int], None],
        memo_bytes: int = MEMO_BYTES,
    ) -> None:
        self._archive = archive
        self._memo_bytes = memo_bytes
        self._advance = advance
        head = archive.pickle.read(0, HEAD_BYTES)
        self._head = _Head(head)
        self._feed = PickleFeed()
        self._unpickler = DataUnpickler(self._feed, archive)
        self._nonce = secrets.token_hex(16)
        self._first_puts: list[int] = []
        self._letters: list[int] = []
        self.tail: dict[str, Any] = {}
        close = (b"e" if self._head.list_marked else b"") + self._close_dict() + b"."
        content = self._load(head[: self._head.end] + close)
        if type(content) is not dict or content.pop("samples", None) != []:
            raise NotSeparable
        self.keys = {key: v for key, v in content.items() if type(key) is str}
        self._base: dict[int, object] = self._unpickler.memo.copy()

    def __iter__(self) -> Iterator[object]:
        """The samples; what one holds is emptied once the next is asked for.

        Raises:
            NotSeparable: A stretch is no sample of its own.
            DumpRefused: The pickle wants something that is no data.
        """
        since_thinning = 0
        for number, (stretch, is_last) in enumerate(self._stretches()):
            if self._head.has_puts:
                first = _first_put(stretch)
                if since_thinning > self._memo_bytes:
                    self._thin_memo(first)
                    since_thinning = 0
                self._first_puts.append(first)
                self._letters.extend(_puts_of_letters(stretch))
            sample = self._last(stretch) if is_last else self._sample(stretch)
            if number == 0:
                self._base = self._unpickler.memo.copy()
            yield sample
            _empty(sample)
            since_thinning += len(stretch)

    def _stretches(self) -> Iterator[tuple[bytes, bool]]:
        """Each sample's bytes, and whether the tail of the pickle follows in them."""
        with self._archive.pickle.open() as source:
            done = self._head.end
            source.read(done)
            buffer = source.read(BUFFER_BYTES)
            while True:
                # From 1 on: the stretch itself begins with the pattern.
                match = self._head.pattern.search(buffer, 1)
                searched = max(1, len(buffer) - _LONGEST_PATTERN)
                while match is None:
                    more = source.read(BUFFER_BYTES)
                    if not more:
                        yield buffer, True
                        return
                    buffer += more
                    match = self._head.pattern.search(buffer, searched)
                    searched = max(1, len(buffer) - _LONGEST_PATTERN)
                start = 0
                while match is not None:
                    yield buffer[start : match.start()], False
                    done += match.start() - start
                    self._advance(done)
                    start = match.start()
                    match = self._head.pattern.search(buffer, start + 1)
                buffer = buffer[start:]

    def _sample(self, stretch: bytes) -> object:
        opened = b"](" + self._nonce_text() + b"e"
        if self._head.list_marked:
            found = self._load(opened + b"(" + stretch + b"e.")
        else:
            found = self._load(opened + stretch + b".")
        return self._only(found)

    def _last(self, stretch: bytes) -> object:
        opened = b"}" + (b"(" if self._head.dict_marked else b"")
        listed = b"](" + self._nonce_text() + b"e"
        mark = b"(" if self._head.list_marked else b""
        content = self._load(opened + _text("samples") + listed + mark + stretch)
        if type(content) is not dict:
            raise NotSeparable
        sample = self._only(content.pop("samples", None))
        self.tail.update({key: v for key, v in content.items() if type(key) is str})
        return sample

    def _only(self, found: object) -> object:
        if type(found) is not list or len(found) != 2 or found[0] != self._nonce:
            raise NotSeparable
        sample = found[1]
        if type(sample) is not dict or any(map(_is_spent, sample.values())):
            raise NotSeparable
        return sample

    def _load(self, pickled: bytes) -> object:
        self._feed.give(pickled)
        try:
            with pickle_errors(str(self._archive.path)):
                return self._unpickler.load()
        except DumpRefused:
            raise
        except DumpError as error:
            # Damaged, or cut at the wrong place: reading it at once will tell.
            raise NotSeparable from error

    def _close_dict(self) -> bytes:
        return b"u" if self._head.dict_marked else b"s"

    def _nonce_text(self) -> bytes:
        return _text(self._nonce)

    def _thin_memo(self, end: int) -> None:
        """Forgets what earlier samples held, but for what is likely to come again.

        Python keeps one object for each text of a single letter; texts shared within a
        group are in the last few samples. A sample that refers to anything else cannot
        be read on its own.

        Args:
            end: Number that the next sample's first entry has.
        """
        recent = self._first_puts[-RECENT_SAMPLES:][0]
        letters = [number for number in self._letters if number < recent]
        numbers = [*letters, *range(recent, end)]
        gets = np.empty(len(numbers), [("get", "S1"), ("number", "<u4")])
        gets["get"], gets["number"] = b"j", numbers
        found = self._load(b"(" + gets.tobytes() + b"t.")
        if type(found) is not tuple or len(found) != len(numbers):
            raise NotSeparable
        kept = dict(zip(numbers, found, strict=True))
        later = (number for number in self._letters if number >= recent)
        self._letters = [n for n in letters if _is_letter(kept[n])] + [*later]
        self._unpickler = DataUnpickler(self._feed, self._archive)
        self._unpickler.remember({**kept, **self._base}, self._feed)


def _first_put(stretch: bytes) -> int:
    """The number in the memo of a sample's own dict, which comes first in it."""
    number = stretch[2:6] if stretch[1:2] == _PUT_LONG else stretch[2:3]
    return int.from_bytes(number, "little")


def _puts_of_letters(stretch: bytes) -> Iterator[int]:
    """Numbers in the memo of what look like texts of a single letter."""
    for pattern in _PUTS_OF_LETTERS:
        for match in pattern.finditer(stretch):
            yield int.from_bytes(match[1] or match[2], "little")


def _is_letter(value: object) -> bool:
    return type(value) is str and len(value) == 1


def _text(text: str) -> bytes:
    content = text.encode()
    return b"X" + len(content).to_bytes(4, "little") + content


def _is_spent(value: object) -> bool:
    return type(value) is list and len(value) == 1 and value[0] is SPENT


def _empty(sample: object) -> None:
    """Lets go of a sample's lists, which the memo still knows.

    A later sample that shares one of them then finds the mark in it.
    """
    for value in sample.values() if type(sample) is dict else ():
        if type(value) is list:
            value[:] = [SPENT]
