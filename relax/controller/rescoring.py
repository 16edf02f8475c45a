"""Responses scored again, by the run's reward or another, outside of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from relax.arguments import Arguments
from relax.arguments.arguments import replaced
from relax.backends.ray_border import answer
from relax.control.orders import ReplayOrder
from relax.controller.comparison import Comparison
from relax.controller.probes import Finding
from relax.controller.replay_source import ReplaySource
from relax.controller.trainers import call_trainers
from relax.controller.workers import Workers
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rewards.registry import BUILT_IN
from relax.engine.rollout.replayed import grouped
from relax.engine.rollout.sample import Sample
from relax.measure.reduction import Mean, Metrics, Sum

SCORE_SECONDS = 60.0
NOTED = 5


async def rescored(
    arguments: Arguments, source: ReplaySource, order: ReplayOrder, *, workers: Workers
) -> Finding:
    """Scores recorded responses in a process of its own, which ends afterwards.

    An exception, a hang or a NaN of the reward function is a failure of its sample,
    never a reward of 0.

    Args:
        arguments: Of the run.
        source: What was recorded.
        order: Names the reward function.
        workers: The run's actors.
    """
    key = arguments.reward.reward_key
    together = arguments.reward.group_rm
    groups = grouped(source.samples) if together else [[s] for s in source.samples]
    async with workers.scorer(_with_reward(arguments, order.reward)) as scorer:
        answers = await asyncio.gather(*(_score(scorer, group) for group in groups))
    outcomes = [outcome for group in answers for outcome in group]
    samples = [sample for group in groups for sample in group]
    before = [sample.scalar_reward(key) for sample in samples]
    now = [_number(outcome, key) for outcome in outcomes]
    failures = [
        f"sample {sample.index}: {outcome.failure}"
        for sample, outcome in zip(samples, outcomes, strict=True)
        if outcome.failure
    ]
    comparisons = [_compared("reward", samples, before, now)]
    if workers.trainers and None not in now:
        again = await call_trainers(
            workers, "baselined", now, [sample.group_index for sample in samples]
        )
        as_trained = await call_trainers(
            workers, "baselined", before, [sample.group_index for sample in samples]
        )
        comparisons.append(
            _compared("normalized_reward", samples, as_trained[0], again[0])
        )
    return Finding(
        samples=len(samples),
        weights_version=-1,
        weights="now",
        comparisons=comparisons,
        notes=_notes(failures),
        metrics=_metrics(before, now, failures=len(failures)),
    )


def _with_reward(arguments: Arguments, reward: str) -> Arguments:
    if not reward:
        return arguments
    if reward in BUILT_IN:
        return replaced(arguments, rm_type=reward, custom_rm_path=None)
    return replaced(arguments, rm_type=None, custom_rm_path=reward)


async def _score(scorer: Any, group: Sequence[Sample]) -> list[ScoreOutcome]:
    rows = [sample.to_dict() for sample in group]
    try:
        async with asyncio.timeout(SCORE_SECONDS):
            outcomes: list[ScoreOutcome] = await answer(
                scorer.score.remote(rows), worker="reward-replay"
            )
    except TimeoutError:
        late = f"no answer within {SCORE_SECONDS:g} s"
        return [ScoreOutcome(reward=None, failure=late) for _ in group]
    return outcomes


def _number(outcome: ScoreOutcome, key: str | None) -> float | None:
    return Sample(reward=outcome.reward).scalar_reward(key)


def _compared(
    name: str,
    samples: Sequence[Sample],
    before: Sequence[float | None],
    now: Sequence[float | None],
) -> Comparison:
    pairs = list(zip(samples, before, now, strict=True))
    unequal = [sample.index for sample, a, b in pairs if a != b]
    distances = [
        (abs(a - b), sample.index)
        for sample, a, b in pairs
        if a is not None and b is not None
    ]
    largest, index = max(distances, default=(None, None), key=lambda pair: pair[0])
    return Comparison(
        name=name,
        compared=len(pairs),
        unequal=len(unequal),
        max_abs=largest,
        sample_index=(index if largest else unequal[0]) if unequal else None,
        position=None,
        exact=True,
        equal=not unequal,
    )


def _notes(failures: Sequence[str]) -> tuple[str, ...]:
    more = len(failures) - NOTED
    return (
        *failures[:NOTED],
        *([f"{more} more samples have no reward"] if more > 0 else []),
    )


def _metrics(
    before: Sequence[float | None], now: Sequence[float | None], *, failures: int
) -> Metrics:
    recorded = [value for value in before if value is not None]
    scored = [value for value in now if value is not None]
    return {
        "reward/recorded": Mean(sum(recorded), len(recorded)),
        "reward/now": Mean(sum(scored), len(scored)),
        "reward/failed": Sum(failures),
    }
