"""Policy-gradient losses, token by token: clipped, by sequence, truncated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relax.algorithms.masks import token_sum
from relax.algorithms.shapes import require_same_shape
from relax.errors import InternalError


class PolicyLossTerms(NamedTuple):
    """Per-token terms of the loss, all of one shape.

    Attributes:
        loss: To be minimised; carries the gradient.
        clipped: 1 where a clip took effect, else 0; no gradient.
        ppo_kl: old_log_probs - log_probs, nats; by sequence its mean.
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
    """Computes the clipped surrogate of each token: max(-ratio·A, -clip(ratio)·A).

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
    return _clipped_surrogate(
        old_log_probs - log_probs,
        advantages,
        eps_clip=eps_clip,
        eps_clip_high=eps_clip_high,
    )


def sequence_policy_loss(
    log_probs: Sequence[Tensor],
    old_log_probs: Sequence[Tensor],
    advantages: Sequence[Tensor],
    masks: Sequence[Tensor],
    *,
    eps_clip: float,
    eps_clip_high: float,
) -> PolicyLossTerms:
    """Computes the clipped surrogate with one ratio for a whole sample (gspo).

    The ratio of each token is exp of the *mean* log-ratio of its sample's unmasked
    tokens: the geometric mean of the token ratios, through which the gradient goes.

    Source: Zheng et al., "Group Sequence Policy Optimization" (2025), equations 5 to 7;
    reduced by token as upstream does it.

    Args:
        log_probs: Of each sample, [R] each, nats.
        old_log_probs: Likewise; no gradient expected.
        advantages: Likewise.
        masks: Loss mask of each sample, [R]. A sample whose mask is empty has no ratio;
            its tokens get 1 and count nowhere.
        eps_clip: Lower clip.
        eps_clip_high: Upper clip.

    Returns:
        The terms over all samples' tokens, one after the other, [N].

    Raises:
        InternalError: The shapes differ, or there is no sample.
    """
    if not log_probs:
        raise InternalError("sequence_policy_loss was given no sample")
    means = []
    for new, old, advantage, mask in zip(
        log_probs, old_log_probs, advantages, masks, strict=True
    ):
        require_same_shape(log_probs=new, old=old, advantages=advantage, mask=mask)
        total, count = token_sum(old - new, mask)
        mean = total / count if int(count) else total
        means.append(mean.expand_as(new))
    return _clipped_surrogate(
        torch.cat(means),
        torch.cat(list(advantages)),
        eps_clip=eps_clip,
        eps_clip_high=eps_clip_high,
    )


def truncated_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    eps_clip: float,
    eps_clip_high: float,
) -> PolicyLossTerms:
    """Computes -weight·A·log_prob of each token, the weight truncated (cispo).

    The weight is the ratio, limited to 1 + eps_clip_high where A ≥ 0 and from below to
    1 - eps_clip where A < 0; no gradient goes through it, so a token beyond the limit
    keeps its gradient.

    Source: MiniMax, "MiniMax-M1" (2025), equations 4 and 5; the sides of the limits are
    upstream's.

    Args:
        log_probs: Log-probabilities under the weights being trained, any shape, nats.
        old_log_probs: Under the weights the advantages belong to; no gradient expected.
        advantages: Advantage of each token.
        eps_clip: Lower limit: 1 - eps_clip.
        eps_clip_high: Upper limit: 1 + eps_clip_high.

    Returns:
        The terms.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(
        log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages
    )
    ppo_kl = old_log_probs - log_probs
    ratio = torch.exp(-ppo_kl)
    fixed = ratio.detach()
    upper, lower = 1 + eps_clip_high, 1 - eps_clip
    gains = advantages >= 0
    weight = torch.where(gains, fixed.clamp(max=upper), fixed.clamp(min=lower))
    clipped = torch.where(gains, fixed > upper, fixed < lower)
    return PolicyLossTerms(
        loss=-weight * advantages * log_probs,
        clipped=clipped.to(log_probs.dtype),
        ppo_kl=ppo_kl,
        ratio=ratio,
    )


def _clipped_surrogate(
    ppo_kl: Tensor, advantages: Tensor, *, eps_clip: float, eps_clip_high: float
) -> PolicyLossTerms:
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
