"""Requests that wait for a place in the batch.

What is computed together decides the last bits, so requests that were sent together
are admitted together, in their order, however they arrive.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from relax.backends.embedded.decode import Row
from relax.backends.rollout import Together

GATHER_SECONDS = 0.004
"""Requests that come this close after each other are prefilled together."""

MOST_GATHER_SECONDS = 0.05

GATHER_ANNOUNCED_SECONDS = 0.25
"""Requests that say how many are sent at once are waited for until none comes for so
long: what is computed together must not depend on how busy the machine is."""

SETS_REMEMBERED = 16
"""Sets of requests sent at once; more are never in one engine at the same time."""


class WaitingRows:
    """Rows in the order in which they are admitted.

    Args:
        changed: Guards the rows; notified when one comes, or when all must end.
        enough: Rows that fill a batch.
        patience: Seconds to wait for the next of the requests sent at once.
    """

    def __init__(
        self,
        changed: threading.Condition,
        *,
        enough: int,
        patience: float = GATHER_ANNOUNCED_SECONDS,
    ) -> None:
        self._changed = changed
        self._enough = enough
        self._patience = patience
        self._rows: deque[Row] = deque()
        self._gathered: deque[str] = deque(maxlen=SETS_REMEMBERED)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Adds a row and tells who waits."""
        with self._changed:
            self._rows.append(row)
            self._changed.notify()

    def take(self, count: int) -> list[Row]:
        """Removes and returns the first ``count`` rows, or all when there are fewer."""
        with self._changed:
            return [self._rows.popleft() for _ in range(min(count, len(self._rows)))]

    def gather(self, closing: Callable[[], bool]) -> None:
        """Waits while requests keep coming, so that they are prefilled together.

        Args:
            closing: Whether to give up at once.
        """
        with self._changed:
            if self._announced():
                self._gather_announced(closing)
            else:
                self._gather_what_comes(closing)

    def _gather_what_comes(self, closing: Callable[[], bool]) -> None:
        deadline = time.monotonic() + MOST_GATHER_SECONDS
        before = 0
        while before < len(self) < self._enough:
            before = len(self)
            left = deadline - time.monotonic()
            if left <= 0 or closing():
                return
            self._changed.wait_for(
                lambda: closing() or len(self) >= self._enough,
                timeout=min(GATHER_SECONDS, left),
            )

    def _gather_announced(self, closing: Callable[[], bool]) -> None:
        """Waits for each set once: what of it found no place before is here already."""
        before, missing = None, self._missing()
        while missing and missing != before and not closing():
            before = missing
            self._changed.wait_for(
                lambda: closing() or not self._missing(), timeout=self._patience
            )
            missing = self._missing()
        self._rows = deque(sorted(self._rows, key=_number))
        for each in self._announced():
            if each.name not in self._gathered:
                self._gathered.append(each.name)

    def _announced(self) -> list[Together]:
        return [row.request.together for row in self._rows if row.request.together]

    def _missing(self) -> int:
        """Requests of sets not waited for yet that were announced and did not come."""
        new = [each for each in self._announced() if each.name not in self._gathered]
        return sum({each.name: each.count for each in new}.values()) - len(new)


def _number(row: Row) -> float:
    """Its place among the requests it was sent with; others come after them."""
    together = row.request.together
    return math.inf if together is None else together.number
