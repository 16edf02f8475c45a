"""Following a rollout while it is generating."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from relax.backends.ray_border import answer
from relax.controller.recorder import Recorder
from relax.controller.rollout import RolloutInHand
from relax.controller.runlog import RunLog
from relax.engine.rollout.runner import ProgressReport
from relax.engine.rollout.sample import Sample
from relax.events.append import EventSink
from relax.events.types import RolloutProgress
from relax.observe.sample_rows import sample_rows

FIRST_POLL_SECONDS = 0.1
POLL_SECONDS = 0.5
LIVE_SECONDS = 1.0


class Follower:
    """Writes progress, live samples and log lines until generation ends.

    Args:
        runner: The rollout runner's handle.
        recorder: Writes the live stream of rollouts that are observed.
        events: The event log.
        log: The run's log.
        reward_key: Key of the number when rewards are dicts.
    """

    def __init__(
        self,
        runner: Any,
        *,
        recorder: Recorder,
        events: EventSink,
        log: RunLog,
        reward_key: str | None,
    ) -> None:
        self._runner = runner
        self._recorder = recorder
        self._events = events
        self._log = log
        self._reward_key = reward_key

    async def follow(self, work: asyncio.Future[Any], rollout: RolloutInHand) -> None:
        """Follows until ``work``, the generation, is done."""
        if not rollout.observed:
            await self._poll(work, rollout, live=None)
            return
        with self._recorder.live(rollout) as live:
            await self._poll(work, rollout, live=live)

    async def _poll(
        self, work: asyncio.Future[Any], rollout: RolloutInHand, *, live: Any
    ) -> None:
        shown: RolloutProgress | None = None
        written = 0.0
        waiting: list[Sample] = []
        finished: set[Any] = set()
        while not finished:
            # The first responses are what a person waits for: look sooner for them.
            timeout = POLL_SECONDS if written else FIRST_POLL_SECONDS
            finished, _ = await asyncio.wait({work}, timeout=timeout)
            report: ProgressReport = await answer(
                self._runner.take_progress.remote(), worker="rollout-runner"
            )
            for line in report.lines:
                self._log.info(line)
            waiting.extend(report.samples)
            due = finished or time.monotonic() - written >= LIVE_SECONDS
            if live is not None and waiting and due:
                live.append(self._rows(waiting, rollout.rollout_id))
                written = time.monotonic()
                waiting.clear()
            progress = RolloutProgress(
                rollout_id=rollout.rollout_id, **dataclasses.asdict(report.progress)
            )
            if progress != shown:
                self._events.append(progress)
                shown = progress

    def _rows(self, samples: list[Sample], rollout_id: int) -> dict[str, list[Any]]:
        return sample_rows(
            samples,
            rollout_id=rollout_id,
            kept=range(len(samples)),
            reward_key=self._reward_key,
        )
