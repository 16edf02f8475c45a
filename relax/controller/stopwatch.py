"""How long stages take, and when one takes too long."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque

from relax.events.types import Stage

WINDOW = 50
SLOW_FACTOR = 3.0
SHORTEST_LIMIT_SECONDS = 3.0


class StageClock:
    """The last durations of each stage, in seconds.

    A stage with an evaluation in it takes its own time: it is another stage here.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[Stage, bool], deque[float]] = defaultdict(
            lambda: deque(maxlen=WINDOW)
        )

    def add(self, stage: Stage, seconds: float, *, evaluates: bool = False) -> None:
        """One more run of a stage."""
        self._seconds[stage, evaluates].append(seconds)

    def median(self, stage: Stage, *, evaluates: bool = False) -> float | None:
        """The stage's median duration; None before its first run ended."""
        seconds = self._seconds.get((stage, evaluates))
        return statistics.median(seconds) if seconds else None

    def limit(self, stage: Stage, *, evaluates: bool = False) -> float | None:
        """When a run of the stage counts as slow: three medians, at least 3 s.

        None before the stage ever ended: then nobody knows what is slow.
        """
        median = self.median(stage, evaluates=evaluates)
        if median is None:
            return None
        return max(SLOW_FACTOR * median, SHORTEST_LIMIT_SECONDS)
