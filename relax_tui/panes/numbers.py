"""Numbers, times and sizes as short text in fixed columns."""

from __future__ import annotations

import math
import time

from relax_tui.lines import Span
from relax_tui.theme import STATUS_ROLES, STATUS_WORDS, Glyphs


def number_text(value: float | None, glyphs: Glyphs) -> str:
    """A number with three digits that count, in at most eight cells.

    An absent one is a dash, never 0; and what is not 0 never reads as 0.

    Args:
        value: The number; None when it is absent.
        glyphs: Of the terminal.

    Returns:
        ``0``, ``0.412``, ``0.0159``, ``41.20``, ``2.1e-04``, ``nan``, ``—``.
    """
    if value is None:
        return glyphs.absent
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100_000 or size < 0.001:
        return f"{value:.1e}"
    if value == int(value):
        return f"{value:.0f}"
    limits = ((0.01, 5), (0.1, 4), (10, 3), (100, 2))
    digits = next((digits for limit, digits in limits if size < limit), 1)
    return f"{value:.{digits}f}"


def reward_text(value: float | None, glyphs: Glyphs) -> str:
    """A reward: two decimals, unless they would turn a small one into 0."""
    if value is None or not math.isfinite(value) or 0 < abs(value) < 0.005:
        return number_text(value, glyphs)
    return f"{value:.2f}"


def log_prob_text(value: float, digits: int) -> str:
    """A log-prob in fixed places; one too small for them by its size."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if abs(value) < 10**-digits * 5:
        return f"{value:.2e}"
    return f"{value:.{digits}f}"


def seconds_text(seconds: float | None, glyphs: Glyphs) -> str:
    """A duration: ``0.04 s``, ``1.3 s``, ``42 s``, ``3:07 min``."""
    if seconds is None:
        return glyphs.absent
    if seconds < 0.1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def bytes_text(size: float) -> str:
    """A size: ``512 MB``, ``2.1 GB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            value = size / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{size:.0f} B"


def clock_text(wall: float | None) -> str:
    """A time of day, which never grows old on the screen: ``14:02:31``."""
    if wall is None:
        return ""
    return time.strftime("%H:%M:%S", time.localtime(wall))


def status_span(status: str) -> Span:
    """A verdict status as its word in its role; four blank cells for none."""
    word = STATUS_WORDS.get(status, status[:4])
    return Span(f"{word:<4}", STATUS_ROLES.get(status, ""))


def percent_text(share: float | None, glyphs: Glyphs) -> str:
    """A share as percent: ``3 %``, ``0.4 %``."""
    if share is None or not math.isfinite(share):
        return number_text(share, glyphs)
    value = share * 100
    return f"{value:.1f} %" if 0 < value < 1 else f"{value:.0f} %"


def length_text(length: int, glyphs: Glyphs) -> str:
    """Tokens of a response; a dash where only its text is known (-1)."""
    return glyphs.absent if length < 0 else str(length)
