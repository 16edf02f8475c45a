"""Statistics of one rollout's samples, under upstream's names.

Names and formulas: upstream's rollout statistics (``rollout/response_len/mean`` …);
each is kept as a reduction where it reduces. A median does not, so it is a gauge over
the samples given.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from relax.errors import RecordError
from relax.measure.reduction import Gauge, Max, Mean, Min, Reduction, Sum
from relax.measure.text import is_repetitive


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutColumns:
    """The columns of a rollout that its statistics need, one entry a sample.

    Attributes:
        rewards: Scalar reward, None where a sample has none.
        group_index: Group of each sample.
        effective_lengths: Response tokens that count (`text.effective_length`).
        statuses: completed, truncated, aborted or failed.
        responses: Response text.
        stop_reasons: Why generation ended, None where unknown; None: no such column.
    """

    rewards: Sequence[float | None]
    group_index: Sequence[int]
    effective_lengths: Sequence[int]
    statuses: Sequence[str]
    responses: Sequence[str]
    stop_reasons: Sequence[str | None] | None = None

    def __post_init__(self) -> None:
        columns = {
            name: getattr(self, name)
            for name in type(self).__slots__
            if getattr(self, name) is not None
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise RecordError(f"columns have different lengths: {lengths}")


def rollout_metrics(
    columns: RolloutColumns, *, prefix: str = "rollout/", passrate: bool = False
) -> dict[str, Reduction]:
    """Computes the statistics of one rollout.

    Args:
        columns: The samples; without any the result is empty.
        prefix: ``rollout/`` or ``eval/<name>/``.
        passrate: Also pass@k for k = 1, 2, 4 … up to the group size
            (``--log-passrate``).

    Returns:
        Name to reduction. Keys that need a value no sample has are absent.
    """
    num_samples = len(columns.statuses)
    if not num_samples:
        return {}
    metrics: dict[str, Reduction] = {}
    metrics |= _spread("response_len", columns.effective_lengths)
    metrics |= _reward_metrics(columns)
    truncated = sum(status == "truncated" for status in columns.statuses)
    repetitive = sum(map(is_repetitive, columns.responses))
    metrics["truncated_ratio"] = Mean(truncated, num_samples)
    metrics["repetition_frac"] = Mean(repetitive, num_samples)
    if columns.stop_reasons is not None:
        reasons = Counter(reason for reason in columns.stop_reasons if reason)
        for reason, count in sorted(reasons.items()):
            metrics[f"stop_reason/{reason}/count"] = Sum(count)
            metrics[f"stop_reason/{reason}/ratio"] = Mean(count, num_samples)
    if passrate:
        metrics |= pass_rates(columns.rewards, columns.group_index)
    return {f"{prefix}{name}": reduction for name, reduction in metrics.items()}


def _spread(name: str, values: Sequence[int]) -> dict[str, Reduction]:
    """Mean, median, max and min of a column."""
    return {
        f"{name}/mean": Mean(sum(values), len(values)),
        f"{name}/median": Gauge(statistics.median(values)),
        f"{name}/max": Max(max(values)),
        f"{name}/min": Min(min(values)),
    }


def _reward_metrics(columns: RolloutColumns) -> dict[str, Reduction]:
    """Mean reward over the samples that have one, and the groups without contrast."""
    present = [reward for reward in columns.rewards if reward is not None]
    metrics: dict[str, Reduction] = {
        "reward_missing": Sum(len(columns.rewards) - len(present)),
        "reward_nonfinite": Sum(sum(not math.isfinite(reward) for reward in present)),
    }
    if not present:
        return metrics
    metrics["raw_reward"] = Mean(sum(present), len(present))
    groups = group_rewards(columns.rewards, columns.group_index)
    flat = [rewards[0] for rewards in groups.values() if has_zero_std(rewards)]
    for reward, count in sorted(Counter(round(float(r), 1) for r in flat).items()):
        metrics[f"zero_std/count_{reward}"] = Sum(count)
    metrics["zero_std/frac"] = Mean(len(flat), len(groups))
    return metrics


def group_rewards(
    rewards: Sequence[float | None], group_index: Sequence[int]
) -> dict[int, list[float]]:
    """Rewards by group; samples without a reward are left out.

    Raises:
        RecordError: The columns have different lengths.
    """
    if len(rewards) != len(group_index):
        raise RecordError(
            f"{len(rewards)} rewards for {len(group_index)} group indices"
        )
    groups: dict[int, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, group_index, strict=True):
        if reward is not None:
            groups[group].append(float(reward))
    return dict(groups)


def has_zero_std(rewards: Sequence[float]) -> bool:
    """Whether all rewards of a group are one finite number, so that none stands out."""
    return all(reward == rewards[0] for reward in rewards) and math.isfinite(rewards[0])


def pass_rates(
    rewards: Sequence[float | None], group_index: Sequence[int]
) -> dict[str, Reduction]:
    """Estimates pass@k for k = 1, 2, 4 … up to the smallest group.

    The unbiased estimator 1 - C(n - c, k) / C(n, k) of Chen et al., "Evaluating Large
    Language Models Trained on Code" (2021), section 2.1. As upstream has it, a sample
    is correct only if its reward is exactly 1; one without a reward is not.

    Args:
        rewards: Reward a sample, None where absent.
        group_index: Group of each sample.

    Returns:
        ``passrate/pass@k`` as the mean over groups; empty without samples.
    """
    results: dict[int, list[bool]] = defaultdict(list)
    for reward, group in zip(rewards, group_index, strict=True):
        results[group].append(reward == 1)
    if not results:
        return {}
    smallest = min(map(len, results.values()))
    metrics: dict[str, Reduction] = {}
    for power in range(smallest.bit_length()):
        k = 2**power
        passed = [_pass_at(len(ok), sum(ok), k) for ok in results.values()]
        metrics[f"passrate/pass@{k}"] = Mean(math.fsum(passed), len(passed))
    return metrics


def _pass_at(n: int, correct: int, k: int) -> float:
    return 1 - math.comb(n - correct, k) / math.comb(n, k)
