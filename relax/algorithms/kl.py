"""Per-token estimators of KL(policy || reference) from two log-probabilities.

With d = log_probs - ref_log_probs of a token sampled from the policy:

    k1          d                    unbiased, may be negative for a token
    k2          d² / 2               biased, never negative
    k3          exp(-d) - 1 + d      unbiased, never negative
    low_var_kl  k3 limited to ±10

Source: J. Schulman, "Approximating KL Divergence" (2020); names and the limit of
``low_var_kl`` are those of the flag ``--kl-loss-type``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from relax.algorithms.shapes import require_same_shape
from relax.errors import ArgumentError

KlKind: TypeAlias = Literal["k1", "k2", "k3", "low_var_kl"]

LOW_VAR_KL_LIMIT = 10.0


def kl_per_token(
    log_probs: Tensor,
    ref_log_probs: Tensor,
    *,
    kind: KlKind,
    importance_ratio: Tensor | None = None,
) -> Tensor:
    """Estimates the KL divergence of each token.

    Non-finite inputs stay visible: a NaN gives NaN in every kind. ``low_var_kl`` turns
    +inf into its limit, so count non-finite log-probs before calling it.

    Args:
        log_probs: The policy's log-probabilities, any shape, float32 or float64, nats.
        ref_log_probs: The reference's, same shape.
        kind: Which estimator.
        importance_ratio: exp(log_probs - old_log_probs), same shape. Given, each
            estimate is weighted by it, which keeps the gradient unbiased when the
            tokens were sampled from an older policy (``--use-unbiased-kl``).

    Returns:
        The estimate of each token in nats, same shape and dtype as ``log_probs``.

    Raises:
        ArgumentError: ``kind`` is unknown.
        InternalError: The shapes differ.
    """
    require_same_shape(log_probs=log_probs, ref_log_probs=ref_log_probs)
    difference = log_probs - ref_log_probs
    if kind == "k1":
        estimate = difference
    elif kind == "k2":
        estimate = difference.square() / 2
    elif kind in ("k3", "low_var_kl"):
        # expm1 keeps the digits that exp(-d) - 1 loses when d is near 0, where a
        # healthy run lives.
        estimate = torch.expm1(-difference) + difference
    else:
        raise ArgumentError(
            f"--kl-loss-type {kind!r} is unknown",
            hint=f"use one of {', '.join(get_args(KlKind))}",
        )
    if importance_ratio is not None:
        require_same_shape(log_probs=log_probs, importance_ratio=importance_ratio)
        estimate = importance_ratio * estimate
    if kind == "low_var_kl":
        estimate = estimate.clamp(min=-LOW_VAR_KL_LIMIT, max=LOW_VAR_KL_LIMIT)
    return estimate
