"""The reward worker as a Ray actor.

A plain asyncio class; `relax.controller.workers` makes it an actor. A reward that
hangs, crashes or eats memory does so in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rewards.worker import RewardWorker
from relax.observe.worker_process import prepare_worker


class RewardActor:
    """Scores samples.

    Args:
        arguments: Of the run.
        run_dir: The run folder, for the worker's own log.
        name: The worker's name, e.g. ``reward-0``.
    """

    def __init__(self, arguments: Arguments, *, run_dir: Path, name: str) -> None:
        self._pid = prepare_worker(run_dir, name)
        self._worker = RewardWorker(arguments.reward, arguments=arguments)

    async def open(self) -> int:
        """Gives the process's pid."""
        return self._pid

    async def score(self, samples: list[dict[str, Any]]) -> list[ScoreOutcome]:
        """Scores samples, given as `Sample.to_dict` makes them."""
        return await self._worker.score(samples)
