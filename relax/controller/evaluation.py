"""Evaluation sets: from the runner's rows to metrics."""

from __future__ import annotations

from typing import Any

from relax.backends.ray_border import answer
from relax.measure.reduction import Mean, Metrics, Reduction, Sum


async def evaluate(runner: Any, *, rollout_id: int) -> Metrics:
    """Goes through every evaluation set once.

    Args:
        runner: The rollout runner's handle.
        rollout_id: The rollout after which it is done.

    Returns:
        By set, with upstream's names: ``eval/<name>``, the mean reward of the samples
        that have one, ``eval/<name>-truncated_ratio``, and how many have none.
    """
    sets = await answer(runner.evaluate.remote(rollout_id), worker="rollout-runner")
    metrics: dict[str, Reduction] = {}
    for name, rows in sets.items():
        rewards = [reward for reward in rows.rewards if reward is not None]
        metrics[f"eval/{name}"] = Mean(sum(rewards), len(rewards))
        metrics[f"eval/{name}/unscored"] = Sum(len(rows.rewards) - len(rewards))
        metrics[f"eval/{name}-truncated_ratio"] = Mean(
            sum(rows.truncated), len(rows.truncated)
        )
    return metrics
