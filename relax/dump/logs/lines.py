"""What stands around the words of a log line: colours, prefixes, times and ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_RAY: Final = re.compile(r"^\s*\((?P<who>[^()]*?pid=\d+(?:, ip=[^)\s]+)?)\)\s?")
_REPEATED: Final = re.compile(r"\[repeated \d+x across cluster\].*$")
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"
)
_CLOCK: Final = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
_RANK: Final = re.compile(
    r"\[[Rr]ank ?:?(?P<rank>\d+)\]|\b(?P<parallel>(?:(?:DP|PP|EP|TP)\d+ ?)+)\]"
)
_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_HEAD: Final = 400
"""Times and ranks stand at the beginning of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineText:
    """A line without what surrounds it.

    Attributes:
        text: Its words; escapes and Ray's prefix are gone.
        process: Ray's ``Name pid=…, ip=…``; '' when there is none.
        rank: ``rank 3``, ``TP0``, or ''.
        time: Seconds since 1970 of the date it names (read as UTC), or since midnight
            when it names only a clock; None without either.
    """

    text: str
    process: str = ""
    rank: str = ""
    time: float | None = None


def clean(raw: bytes) -> LineText:
    """Takes a line apart.

    Args:
        raw: Its bytes.
    """
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    # A progress bar writes over itself; what it wrote last is what stood there.
    text = text.rstrip("\r\n").rpartition("\r")[2]
    process = ""
    if (match := _RAY.match(text)) is not None:
        process, text = match["who"], text[match.end() :]
        text = _REPEATED.sub("", text).rstrip()
    head = text[:_HEAD]
    return LineText(text=text, process=process, rank=_rank(head), time=_time(head))


def _time(head: str) -> float | None:
    if (match := _DATE.search(head)) is not None:
        fraction = float(f"0.{match[7]}") if match[7] else 0.0
        try:
            moment = datetime.strptime(match[0][:19].replace("T", " "), _FORMAT)
        except ValueError:
            return None
        return moment.replace(tzinfo=UTC).timestamp() + fraction
    if (match := _CLOCK.search(head)) is not None:
        hours, minutes, seconds = (int(part) for part in match.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    return None


def _rank(head: str) -> str:
    match = _RANK.search(head)
    if match is None:
        return ""
    return f"rank {match['rank']}" if match["rank"] else match["parallel"].strip()
