"""Rewards to advantages: group baselines, returns, whitening.

Which estimator uses which is in `relax.algorithms.estimators`.

Shapes: B samples, R response tokens, T packed tokens.
"""
# The capital at the end of a tensor's name is its shape.
# ruff: noqa: N803, N806

from __future__ import annotations

from itertools import accumulate
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
    centred, group_of_B, sizes = _centred(rewards_B, group_index_B, group_size)
    if std_normalization:
        several = (sizes > 1)[group_of_B]
        variance = _group_sum(centred.square(), group_of_B, sizes) / (sizes - 1)
        scaled = centred / (variance.sqrt()[group_of_B] + GROUP_STD_EPSILON)
        centred = torch.where(several, scaled, centred)
    return centred.to(rewards_B.dtype)


def leave_one_out_rewards(
    rewards_B: Tensor, group_index_B: Tensor, *, group_size: int | None
) -> Tensor:
    """Subtracts from each reward the mean of its group's *other* samples.

    Source: RLOO (Ahmadian et al., "Back to Basics", 2024, section 3.2). It is
    (r - mean) · n / (n - 1), which is how it is computed, with the exactness of
    `group_normalised_rewards`. A sample alone in its group has no baseline and gives 0,
    as upstream has it.

    Args:
        rewards_B: One scalar reward a sample, float32 or float64, shape [B].
        group_index_B: The group of each sample, integers in any order, shape [B].
        group_size: Samples each group must have, or None for groups of any size.

    Returns:
        Shape [B], dtype of ``rewards_B``.

    Raises:
        ArgumentError: A group has another number of samples than ``group_size``.
        InternalError: The shapes differ.
    """
    centred, group_of_B, sizes = _centred(rewards_B, group_index_B, group_size)
    # A group of one is divided by 0 in the branch that is not taken.
    others = torch.where(sizes > 1, sizes / (sizes - 1), 1.0)
    return (centred * others[group_of_B]).to(rewards_B.dtype)


def _centred(
    rewards_B: Tensor, group_index_B: Tensor, group_size: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards less their group's mean in float64 [B], groups [B], sizes of groups."""
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
    return shifted - mean[group_of_B], group_of_B, sizes


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


def discounted_returns(
    reward: float, kl_R: Tensor, mask_R: Tensor, *, kl_coef: float, gamma: float
) -> Tensor:
    """Discounted sums of token rewards from each token to the end.

    A token's reward is -kl_coef · kl, and the sample's reward is added to the last
    unmasked one. G_t = r_t + gamma · G_{t+1}; masked positions take part as rewards of
    0 and have a return of 0, as upstream has it.

    Source: REINFORCE++ (Hu, 2025, section 3); upstream's
    ``reinforce_plus_plus`` with ``--kl-coef`` and ``--gamma``.

    Args:
        reward: The sample's reward; NaN stays NaN.
        kl_R: KL of each response token, [R]; a NaN under the mask is not looked at.
        mask_R: Loss mask, [R].
        kl_coef: Weight of the KL.
        gamma: Discount, 0 to 1.

    Returns:
        Shape [R], dtype of ``kl_R``.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(kl=kl_R, mask=mask_R)
    keep = mask_R.bool()
    places = keep.nonzero()
    if not places.numel():
        return torch.zeros_like(kl_R)
    rewards = torch.where(keep, -kl_coef * kl_R.to(torch.float64), 0.0)
    rewards[int(places[-1])] += reward
    # Plain numbers: a loop over tensors would cost fifty times as much.
    backwards = accumulate(
        reversed(rewards.tolist()), lambda later, now: now + gamma * later
    )
    returns = rewards.new_tensor(list(backwards)[::-1])
    return torch.where(keep, returns, 0.0).to(kl_R.dtype)


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
