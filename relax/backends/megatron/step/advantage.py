"""Rewards to advantages of a rollout, put together from `relax.algorithms`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from relax.algorithms.advantages import (
    Moments,
    discounted_returns,
    group_normalised_rewards,
    grpo_returns,
    leave_one_out_rewards,
    token_moments,
    whiten,
)
from relax.algorithms.estimators import Baseline, estimator_of
from relax.algorithms.kl import kl_per_token
from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.backends.megatron.parallel import ParallelLayout
from relax.backends.megatron.step.batch import TrainSample
from relax.errors import ArgumentError

FloatColumn = NDArray[np.float32]


def baselined_rewards(
    rewards: Sequence[float], groups: Sequence[int], *, settings: AlgorithmSettings
) -> list[float]:
    """Rewards less the baseline of their groups.

    Args:
        rewards: Of *all* samples of the rollout, also those of other replicas.
        groups: Their groups.
        settings: The estimator, and whether rewards are normalised.
    """
    baseline = estimator_of(settings.advantage_estimator).baseline
    if baseline is Baseline.NONE or not settings.rewards_normalization:
        return list(rewards)
    values = torch.tensor(rewards, dtype=torch.float64)
    group_index = torch.tensor(groups)
    if baseline is Baseline.LEAVE_ONE_OUT:
        found = leave_one_out_rewards(values, group_index, group_size=None)
    else:
        scaled = baseline is Baseline.GROUP_MEAN_STD
        found = group_normalised_rewards(
            values,
            group_index,
            group_size=None,
            std_normalization=scaled and settings.grpo_std_normalization,
        )
    return [float(reward) for reward in found]


def advantages_and_returns(
    samples: Sequence[TrainSample],
    *,
    settings: AlgorithmSettings,
    layout: ParallelLayout,
) -> list[tuple[FloatColumn, FloatColumn]]:
    """Advantages and returns of each sample, float32 [R] each.

    A collective over the data axis when advantages are whitened.

    Args:
        samples: This replica's samples, their rewards less the baseline.
        settings: The estimator and its numbers.
        layout: Which replicas there are.

    Raises:
        ArgumentError: The estimator is not known, a column that it needs is missing, or
            whitening has too few tokens.
    """
    if estimator_of(settings.advantage_estimator).token_rewards:
        returns = [_token_returns(sample, settings) for sample in samples]
    else:
        returns = [grpo_returns(s.reward, s.response_length) for s in samples]
    advantages = [value.clone() for value in returns]
    if settings.normalize_advantages:
        advantages = _whitened(returns, samples, layout=layout)
    return [
        (advantage.numpy(), value.numpy())
        for advantage, value in zip(advantages, returns, strict=True)
    ]


def _token_returns(sample: TrainSample, settings: AlgorithmSettings) -> Tensor:
    kl = torch.zeros(sample.response_length)
    if settings.kl_coef:
        if sample.log_probs is None or sample.ref_log_probs is None:
            raise ArgumentError(
                f"sample {sample.sample_index} has no log_probs or no ref_log_probs, "
                "which --kl-coef needs"
            )
        kl = kl_per_token(
            torch.tensor(sample.log_probs),
            torch.tensor(sample.ref_log_probs),
            kind=settings.kl_loss_type,
        )
    return discounted_returns(
        sample.reward,
        kl,
        torch.tensor(np.asarray(sample.loss_mask)),
        kl_coef=settings.kl_coef,
        gamma=settings.gamma,
    )


def _whitened(
    values: Sequence[Tensor], samples: Sequence[TrainSample], *, layout: ParallelLayout
) -> list[Tensor]:
    """Values shifted and scaled over the unmasked tokens of all replicas."""
    empty = torch.empty(0)
    masks = [torch.tensor(np.asarray(sample.loss_mask)) for sample in samples]
    moments = token_moments(torch.cat([*values, empty]), torch.cat([*masks, empty]))
    sums = torch.stack([part.to(torch.float64) for part in moments]).to(layout.device)
    dist.all_reduce(sums, group=layout.data_group)
    total, total_square, count = sums.cpu()
    everywhere = Moments(total, total_square, count.to(torch.int64))
    return [whiten(value, everywhere) for value in values]
