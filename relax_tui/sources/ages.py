"""Ages in steps so coarse that a screen on which nothing happens hardly changes."""

from __future__ import annotations


def coarse_age(seconds: float) -> str:
    """An age in steps so coarse that an idle screen hardly changes.

    Args:
        seconds: The age.

    Returns:
        E.g. ``now`` (below 3 s), ``5 s``, ``30 s``, ``2 min``, ``3 h``.
    """
    if seconds < 3:
        return "now"
    for limit, step in ((10, 5), (60, 10)):
        if seconds < limit:
            return f"{max(int(seconds // step) * step, 3)} s"
    if seconds < 3600:
        minutes = int(seconds // 60)
        return f"{minutes if minutes < 5 else minutes // 5 * 5} min"
    return f"{int(seconds // 3600)} h"


def coarse_seconds(seconds: float) -> str:
    """How long a stage has been running: whole seconds first, then coarser."""
    whole = int(seconds)
    if whole < 10:
        return f"{whole} s"
    if whole < 60:
        return f"{whole // 5 * 5} s"
    if whole < 600:
        return f"{whole // 60}:{whole % 60 // 10 * 10:02d} min"
    return coarse_age(seconds)
