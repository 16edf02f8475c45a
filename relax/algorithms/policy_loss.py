"""The clipped policy-gradient loss of PPO and GRPO, token by token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relax.algorithms.shapes import require_same_shape


class PolicyLossTerms(NamedTuple):
    """Per-token terms of the loss, all of one shape.

    Attributes:
        loss: max(-ratio·A, -clip(ratio)·A), to be minimised; carries the gradient.
        clipped: 1 where the clipped branch is the larger one, else 0; no gradient.
        ppo_kl: old_log_probs - log_probs, nats.
        ratio: exp(-ppo_kl), the probability ratio new over old.
    """

    loss: Tensor
    clipped: Tensor
    ppo_kl: Tensor
    ratio: Tensor


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    eps_clip: float,
    eps_clip_high: float,
) -> PolicyLossTerms:
    """Computes the clipped surrogate of each token.

    Source: Schulman et al., "Proximal Policy Optimization" (2017), equation 7, with the
    upper bound set apart as in DAPO (Yu et al., 2025, section 3.1).

    When ``old_log_probs`` is the detached ``log_probs``, ratio is 1 and ppo_kl 0 by
    construction: report such a ppo_kl as vacuous, not as healthy.

    Args:
        log_probs: Log-probabilities under the weights being trained, any shape, nats.
        old_log_probs: Under the weights the advantages belong to; no gradient expected.
        advantages: Advantage of each token.
        eps_clip: Lower clip: ratios below 1 - eps_clip stop pushing.
        eps_clip_high: Upper clip: ratios above 1 + eps_clip_high stop pushing.

    Returns:
        The terms; reduce each with `relax.algorithms.masks`.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(
        log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages
    )
    ppo_kl = old_log_probs - log_probs
    ratio = torch.exp(-ppo_kl)
    unclipped = -ratio * advantages
    limited = -ratio.clamp(1 - eps_clip, 1 + eps_clip_high) * advantages
    # maximum hands a NaN of either branch on, so a broken token stays visible.
    loss = torch.maximum(unclipped, limited)
    clipped = (limited > unclipped).to(loss.dtype)
    return PolicyLossTerms(loss=loss, clipped=clipped, ppo_kl=ppo_kl, ratio=ratio)


class ImportanceTerms(NamedTuple):
    """Truncated importance sampling between trainer and rollout engine, per token.

    Attributes:
        weight: The limited ratio; multiply the loss with it. No gradient.
        ratio: exp(log_probs - rollout_log_probs), unlimited. No gradient.
        clipped: 1 where the limit changed the ratio, else 0.
    """

    weight: Tensor
    ratio: Tensor
    clipped: Tensor


def importance_terms(
    train_log_probs: Tensor,
    rollout_log_probs: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> ImportanceTerms:
    """Computes the weights of truncated importance sampling (``--use-tis``).

    Source: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training" (2025).

    Args:
        train_log_probs: The trainer's log-probabilities of the sampled tokens.
        rollout_log_probs: The engine's, same shape.
        clip_low: ``--tis-clip-low``.
        clip_high: ``--tis-clip``.

    Returns:
        The terms; a NaN ratio stays NaN.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(
        train_log_probs=train_log_probs, rollout_log_probs=rollout_log_probs
    )
    ratio = torch.exp(train_log_probs - rollout_log_probs).detach()
    weight = ratio.clamp(clip_low, clip_high)
    clipped = ((ratio < clip_low) | (ratio > clip_high)).to(ratio.dtype)
    return ImportanceTerms(weight=weight, ratio=ratio, clipped=clipped)
