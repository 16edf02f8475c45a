"""The pickle's top dict: all at once, or its samples one after the other.

A dump is mostly one list of samples, and as Python objects it needs about ten times the
memory of its numbers. Where the pickle was written the usual way, each sample is a
stretch of bytes of its own, and `separate` takes them one by one. Where anything about
it is unusual the whole pickle is read at once; the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from relax.dump.decode.archive import Archive
from relax.dump.decode.separate import NotSeparable, SeparateSamples
from relax.dump.decode.unpickle import DataUnpickler, pickle_errors
from relax.errors import DumpError

SEPARATE_FROM_BYTES: Final = 1 << 20
"""Smaller pickles are read at once."""

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a file holds.

    Attributes:
        keys: The top dict without ``samples``; when the samples are separate, without
            what follows them in the file as well, see `tail`.
        samples: The samples in order, to be gone through once; None when the file has
            no such list. Each may be changed or emptied after it was looked at.
        tail: What follows separate samples; complete once they were gone through.
    """

    keys: Mapping[str, Any]
    samples: Iterator[object] | None
    tail: Mapping[str, Any]


def read_content(archive: Archive, *, advance: Advance, separate: bool) -> Content:
    """Reads the pickle of a dump.

    Args:
        archive: The file.
        advance: Told how many bytes of the pickle were read.
        separate: Take samples one by one if possible. `NotSeparable` may then come
            out of the samples in the middle, and the file has to be read again.

    Raises:
        DumpTruncated: The file ends early.
        DumpRefused: It wants something that is no data.
        DumpError: It is damaged, or no dict.
    """
    if separate and archive.pickle.size >= SEPARATE_FROM_BYTES:
        try:
            stream = SeparateSamples(archive, advance=advance)
        except NotSeparable:
            pass
        else:
            return Content(keys=stream.keys, samples=iter(stream), tail=stream.tail)
    with pickle_errors(str(archive.path)), archive.pickle.open() as source:
        content = DataUnpickler(source, archive).load()
    advance(archive.pickle.size)
    if type(content) is not dict:
        raise DumpError(
            f"holds a {type(content).__name__}, not a dump's dict",
            where=str(archive.path),
        )
    keys = {key: value for key, value in content.items() if type(key) is str}
    samples = keys.pop("samples", None)
    if type(samples) is not list:
        return Content(keys=keys, samples=None, tail={})
    return Content(keys=keys, samples=_one_by_one(samples), tail={})


def _one_by_one(samples: list[object]) -> Iterator[object]:
    """The samples, each let go once the next one is asked for."""
    for position, sample in enumerate(samples):
        samples[position] = None
        yield sample
