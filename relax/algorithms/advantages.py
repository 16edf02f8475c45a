"""Rewards to advantages: group normalisation, GRPO returns, whitening.

Shapes: B samples, R response tokens, T packed tokens.
"""
# The capital at the end of a tensor's name is its shape.
# ruff: noqa: N803, N806

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relax.algorithms.shapes import require_same_shape
from relax.errors import ArgumentError, InternalError

GROUP_STD_EPSILON = 1e-6
WHITEN_EPSILON = 1e-8


def group_normalised_rewards(
    rewards_B: Tensor,
    group_index_B: Tensor,
    *,
    group_size: int | None,
    std_normalization: bool,
) -> Tensor:
    """Centres, and on request scales, each reward within its group.

    The formula of GRPO (Shao et al., DeepSeekMath, 2024, section 4.1) with upstream's
    epsilon: (r - mean) / (std + 1e-6), std unbiased (divided by n - 1).

    Sums run in float64 and around the smallest reward of the group, so that a group
    whose rewards are all equal gives exactly 0 whatever the reward is; a rounding error
    there would be scaled up by 1 / epsilon. A group of one sample gives 0: it is its
    own mean, and its std does not exist. A NaN or infinite reward makes every sample of
    its own group non-finite and touches no other group; nothing is replaced.

    Args:
        rewards_B: One scalar reward a sample, float32 or float64, shape [B].
        group_index_B: The group of each sample, integers in any order, shape [B].
        group_size: Samples each group must have, or None for groups of any size.
        std_normalization: Divide by the std (``--grpo-std-normalization``).

    Returns:
        Shape [B], dtype of ``rewards_B``.

    Raises:
        ArgumentError: A group has another number of samples than ``group_size``.
        InternalError: The shapes differ.
    """
    require_same_shape(rewards=rewards_B, group_index=group_index_B)
    groups, group_of_B, sizes = torch.unique(
        group_index_B, return_inverse=True, return_counts=True
    )
    _require_group_size(groups, sizes, group_size)

    rewards = rewards_B.to(torch.float64)
    smallest = rewards.new_full(sizes.shape, torch.inf)
    smallest = smallest.scatter_reduce(0, group_of_B, rewards, reduce="amin")
    shifted = rewards - smallest[group_of_B]
    mean = _group_sum(shifted, group_of_B, sizes) / sizes
    centred: Tensor = shifted - mean[group_of_B]
    if std_normalization:
        several = (sizes > 1)[group_of_B]
        variance = _group_sum(centred.square(), group_of_B, sizes) / (sizes - 1)
        scaled = centred / (variance.sqrt()[group_of_B] + GROUP_STD_EPSILON)
        centred = torch.where(several, scaled, centred)
    return centred.to(rewards_B.dtype)


def _require_group_size(groups: Tensor, sizes: Tensor, group_size: int | None) -> None:
    """Refuses the first group whose size is not ``group_size``."""
    if group_size is None:
        return
    wrong = sizes != group_size
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ArgumentError(
            f"group {int(groups[first])} has {int(sizes[first])} samples, "
            f"--n-samples-per-prompt is {group_size} "
            f"({int(wrong.sum())} of {len(groups)} groups have a wrong size)",
            hint="give every prompt all its samples, or pass the dump's own "
            "--n-samples-per-prompt",
        )


def _group_sum(values: Tensor, group_of_B: Tensor, sizes: Tensor) -> Tensor:
    """Sums values by group; a NaN stays in its group."""
    return values.new_zeros(sizes.shape).index_add(0, group_of_B, values)


def grpo_returns(
    reward: float,
    response_length: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Gives every response token of a sample the sample's (normalised) reward.

    Args:
        reward: The reward; NaN stays NaN.
        response_length: Number of response tokens R, at least 0.
        dtype: Element type of the result.
        device: Where the result lives.

    Returns:
        Shape [R].

    Raises:
        InternalError: ``response_length`` is negative.
    """
    if response_length < 0:
        raise InternalError(f"response_length is negative: {response_length}")
    return torch.full((response_length,), reward, dtype=dtype, device=device)


class Moments(NamedTuple):
    """Sums that add over samples, micro-batches and ranks.

    Attributes:
        total: Sum of the unmasked values, float64 scalar.
        total_square: Sum of their squares, float64 scalar.
        num_tokens: Their number, int64 scalar.
    """

    total: Tensor
    total_square: Tensor
    num_tokens: Tensor


def token_moments(values_T: Tensor, mask_T: Tensor) -> Moments:
    """Sums that `whiten` needs, over the unmasked tokens.

    Args:
        values_T: Per-token values, any shape.
        mask_T: Same shape; non-zero where the token counts.

    Returns:
        The moments; add them over all ranks before whitening.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(values=values_T, mask=mask_T)
    kept = torch.where(mask_T.bool(), values_T.to(torch.float64), 0.0)
    return Moments(kept.sum(), kept.square().sum(), mask_T.bool().sum())


def whiten(values_T: Tensor, moments: Moments) -> Tensor:
    """Shifts and scales values to mean 0 and variance 1 (``--normalize-advantages``).

    Formula of upstream: (x - mean) / sqrt(variance + 1e-8), variance unbiased.

    Args:
        values_T: Per-token values, any shape, masked ones included.
        moments: Moments over all unmasked tokens of the step, of all ranks.

    Returns:
        Same shape and dtype as ``values_T``.

    Raises:
        ArgumentError: Fewer than two unmasked tokens: no variance exists.
    """
    count = int(moments.num_tokens)
    if count < 2:
        raise ArgumentError(
            f"--normalize-advantages needs at least 2 unmasked tokens, got {count}",
            hint="look at the loss masks of this rollout",
        )
    mean = moments.total / count
    biased = moments.total_square / count - mean.square()
    # Rounding can leave a constant column a hair below 0; a negative variance is not
    # a thing. NaN passes through clamp unchanged.
    variance = biased.clamp(min=0.0) * count / (count - 1)
    scaled = (values_T.to(torch.float64) - mean) / (variance + WHITEN_EPSILON).sqrt()
    return scaled.to(values_T.dtype)
