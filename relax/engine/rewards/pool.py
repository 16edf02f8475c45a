"""Spreads scoring over reward workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rollout.sample import Sample
from relax.errors import InternalError, WorkerError


class Worker(Protocol):
    """A `relax.engine.rewards.worker.RewardWorker`, here or in another process."""

    async def score(self, samples: list[dict[str, Any]]) -> list[ScoreOutcome]:
        """One outcome a sample, in order."""
        ...


class RewardPool:
    """Gives each call to the worker that has the least to do.

    Args:
        workers: At least one.
        max_concurrency: Most calls at once (``--reward-max-concurrency``).
    """

    def __init__(self, workers: Sequence[Worker], *, max_concurrency: int) -> None:
        if not workers:
            raise InternalError("a reward pool was made without workers")
        self._workers = list(workers)
        self._load = [0 for _ in workers]
        self._slots = asyncio.Semaphore(max_concurrency)

    async def score(self, samples: Sequence[Sample]) -> list[ScoreOutcome]:
        """Score samples together; with ``--group-rm`` a whole group.

        Returns:
            One outcome a sample, in order.

        Raises:
            WorkerError: A worker answered with the wrong number of outcomes.
        """
        async with self._slots:
            chosen = self._load.index(min(self._load))
            self._load[chosen] += 1
            try:
                rows = [sample.to_dict() for sample in samples]
                outcomes = await self._workers[chosen].score(rows)
            finally:
                self._load[chosen] -= 1
        if len(outcomes) != len(samples):
            raise WorkerError(
                f"reward worker {chosen} answered {len(outcomes)} outcomes for "
                f"{len(samples)} samples"
            )
        return outcomes
