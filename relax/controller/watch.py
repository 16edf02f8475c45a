"""Says when a stage takes too long, and where each process stands."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from relax.controller.hands import Hands
from relax.controller.state import RunStage
from relax.controller.stopwatch import StageClock
from relax.events.append import EventWriter
from relax.events.types import StageSlow, VerdictGiven
from relax.triage.hang import SlowStage, Standing, judge_slow_stage

SECOND_LOOK_SECONDS = 1.0
_OURS = re.compile(r"/relax/(algorithms|backends|dump|engine|faults|measure|observe)/")
_MAIN = '"MainThread"'
_WAITS = re.compile(r"/(threading|queue|selectors|thread)\.py\"")


class StageWatch:
    """Watches one stage at a time; it only tells, a person decides.

    Args:
        clock: Knows how long the stages usually take.
        hands: Can ask the processes for their stacks.
        events: The event log.
        run: The run as a command line would name it.
    """

    def __init__(
        self, clock: StageClock, *, hands: Hands, events: EventWriter, run: str
    ) -> None:
        self._clock = clock
        self._hands = hands
        self._events = events
        self._run = run

    async def follow(self, order: RunStage, *, began: float) -> None:
        """Tells at three medians, then at twice that, four times …; until cancelled.

        Args:
            order: The stage that runs.
            began: When it began, on the monotonic clock, seconds.
        """
        evaluates = self._hands.evaluates(order)
        limit = self._clock.limit(order.stage, evaluates=evaluates)
        median = self._clock.median(order.stage, evaluates=evaluates)
        if limit is None or median is None:
            return
        while True:
            await asyncio.sleep(limit - (time.monotonic() - began))
            look = await self._look()
            self._events.append(
                StageSlow(
                    rollout_id=order.rollout_id,
                    stage=order.stage,
                    seconds=time.monotonic() - began,
                    median_seconds=median,
                    places=look.places,
                )
            )
            await asyncio.sleep(SECOND_LOOK_SECONDS)
            slow = SlowStage(
                rollout_id=order.rollout_id,
                stage=order.stage,
                seconds=time.monotonic() - began,
                median_seconds=median,
                standings=_standings(look, await self._look()),
                run=self._run,
            )
            self._events.append(
                VerdictGiven(
                    rollout_id=order.rollout_id,
                    stage=order.stage,
                    verdict=judge_slow_stage(slow).to_json(),
                ),
                sync=True,
            )
            limit *= 2

    async def _look(self) -> _Look:
        stacks = await self._hands.stacks()
        names = [name for name in stacks.stacks if name != "driver"]
        return _Look(
            places={name: innermost_place(stacks.stacks[name]) for name in names},
            cpu=self._hands.cpu_seconds(),
            at=time.monotonic(),
        )


@dataclass(frozen=True, kw_only=True)
class _Look:
    """Where each process stands, and how much processor time it has used."""

    places: Mapping[str, str]
    cpu: Mapping[str, float]
    at: float


def _standings(first: _Look, second: _Look) -> list[Standing]:
    seconds = second.at - first.at
    return [
        Standing(
            name=name,
            place=place,
            stays=first.places.get(name) == place,
            share=(second.cpu[name] - first.cpu[name]) / seconds
            if name in first.cpu and name in second.cpu
            else None,
        )
        for name, place in second.places.items()
    ]


def innermost_place(stack: str) -> str:
    """The innermost Python line of the thread that does the run's work.

    That is the main thread if it is in this package, else another one that is and does
    not just wait (what an actor runs beside its event loop). Where all wait, the main
    thread stands for the process.

    Args:
        stack: From `relax.observe.stacks`, innermost line first within a thread.

    Returns:
        ``file.py:12 in function``, or '' when there is no Python frame.
    """
    texts = sorted(stack.split("\n\n"), key=lambda text: _MAIN not in text)
    threads = [(_MAIN in text, frames) for text in texts if (frames := _frames(text))]
    working = (
        frames
        for is_main, frames in threads
        if any(map(_OURS.search, frames)) and (is_main or not _WAITS.search(frames[0]))
    )
    frames = next(working, threads[0][1] if threads else [])
    if not frames:
        return ""
    file, _, rest = frames[0].partition('", line ')
    number, _, function = rest.partition(" in ")
    return f"{file.rpartition('/')[2]}:{number} in {function}"


def _frames(thread: str) -> list[str]:
    """``path", line 12 in function`` of each frame."""
    lines = (line.strip() for line in thread.splitlines())
    return [line[6:] for line in lines if line.startswith('File "')]
