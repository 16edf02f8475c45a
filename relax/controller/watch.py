"""Says when a stage takes too long, and where each process stands."""

from __future__ import annotations

import asyncio
import time

from relax.controller.hands import Hands
from relax.controller.state import RunStage
from relax.controller.stopwatch import StageClock
from relax.events.append import EventWriter
from relax.events.types import StageSlow


class StageWatch:
    """Watches one stage at a time; it only tells, a person decides.

    Args:
        clock: Knows how long the stages usually take.
        hands: Can ask the processes for their stacks.
        events: The event log.
    """

    def __init__(self, clock: StageClock, *, hands: Hands, events: EventWriter) -> None:
        self._clock = clock
        self._hands = hands
        self._events = events

    async def follow(self, order: RunStage, *, began: float) -> None:
        """Tells at three medians, then at twice that, four times …; until cancelled.

        Args:
            order: The stage that runs.
            began: When it began, on the monotonic clock, seconds.
        """
        limit = self._clock.limit(order.stage)
        median = self._clock.median(order.stage)
        if limit is None or median is None:
            return
        while True:
            await asyncio.sleep(limit - (time.monotonic() - began))
            stacks = await self._hands.stacks()
            self._events.append(
                StageSlow(
                    rollout_id=order.rollout_id,
                    stage=order.stage,
                    seconds=time.monotonic() - began,
                    median_seconds=median,
                    places={
                        name: innermost_place(text)
                        for name, text in stacks.stacks.items()
                        if name != "driver"
                    },
                )
            )
            limit *= 2


def innermost_place(stack: str) -> str:
    """The innermost Python line of the main thread in a faulthandler dump.

    Args:
        stack: What faulthandler wrote, innermost line first within a thread.

    Returns:
        ``file.py:12 in function``, or '' when there is no Python frame.
    """
    threads = stack.split("\n\n")
    main = next((t for t in threads if "Current thread" in t), threads[-1])
    for line in main.splitlines():
        if line.lstrip().startswith("File "):
            file, _, rest = line.strip()[6:].partition('", line ')
            number, _, function = rest.partition(" in ")
            return f"{file.rpartition('/')[2]}:{number} in {function}"
    return ""
