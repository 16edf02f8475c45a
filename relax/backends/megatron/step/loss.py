"""The loss of one micro-batch, put together from `relax.algorithms`.

Letters: N response tokens of all rows of the micro-batch, one after the other.

Every term leaves here as a sum; the one count beside them is of samples, or of unmasked
tokens under ``--calculate-per-token-loss``. megatron adds counts over micro-batches and
ranks and divides the gradients once; metrics are divided by the same count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relax.algorithms.kl import kl_per_token
from relax.algorithms.masks import sample_mean_sum, token_sum
from relax.algorithms.policy_loss import importance_terms, policy_loss
from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.backends.megatron.step.batch import MicroBatch
from relax.backends.megatron.step.logprob import TokenScores
from relax.errors import ArgumentError

VACUOUS_WITHOUT_OLD = ("ppo_kl", "pg_clipfrac")
"""Terms that are zero by construction when the old log-probs are the current ones."""


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """Sums over a micro-batch.

    Attributes:
        loss: To be minimised, carries the gradient, scalar.
        terms: Metric name → sum, detached float32 scalars.
        count: Samples or unmasked tokens behind every sum.
        vacuous: Terms that could not have been anything but zero.
    """

    loss: Tensor
    terms: dict[str, Tensor]
    count: int
    vacuous: tuple[str, ...]


@dataclass(kw_only=True)
class _Columns:
    """Per-token columns of a micro-batch on its device, and the way they are summed."""

    batch: MicroBatch
    device: torch.device
    per_token: bool
    masks: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        mask = self.required("loss_mask", "")
        self.masks = list(mask.split(self.batch.response_lengths))

    def optional(self, name: str) -> Tensor | None:
        """The column over all rows, [N], or None when the samples have none."""
        parts = [getattr(sample, name) for sample in self.batch.samples]
        if any(part is None for part in parts):
            return None
        return _joined(parts).to(self.device)

    def required(self, name: str, needed_by: str) -> Tensor:
        """The column over all rows, [N].

        Raises:
            ArgumentError: A sample has none; names what needs it.
        """
        column = self.optional(name)
        if column is None:
            missing = next(s for s in self.batch.samples if getattr(s, name) is None)
            raise ArgumentError(
                f"sample {missing.sample_index} has no {name}, which {needed_by} needs"
            )
        return column

    def total(self, values: Tensor) -> Tensor:
        """Sum over tokens, or over samples of their token means."""
        pieces = values.split(self.batch.response_lengths)
        if self.per_token:
            parts = [
                token_sum(piece, mask).total
                for piece, mask in zip(pieces, self.masks, strict=True)
            ]
            return torch.stack(parts).sum()
        return sample_mean_sum(pieces, self.masks).total

    def count(self) -> int:
        """What `total` is to be divided by."""
        if self.per_token:
            return sum(int(mask.bool().sum()) for mask in self.masks)
        return len(self.masks)


def micro_batch_loss(
    scores: TokenScores,
    batch: MicroBatch,
    *,
    settings: AlgorithmSettings,
    per_token: bool,
) -> LossSums:
    """The policy loss of a micro-batch with its metrics.

    loss = pg_loss - entropy_coef · entropy_loss + kl_loss_coef · kl_loss, as upstream.

    Args:
        scores: Current log-probs and entropies of the response tokens, with gradient.
        batch: The micro-batch; its samples have advantages.
        settings: Clips and coefficients.
        per_token: Weigh each token the same instead of each sample.

    Returns:
        The sums.

    Raises:
        ArgumentError: A column that a setting needs is missing.
    """
    log_probs, entropy = scores
    columns = _Columns(batch=batch, device=log_probs.device, per_token=per_token)
    old, vacuous = _old_log_probs(columns, log_probs, settings)
    policy = policy_loss(
        log_probs,
        old,
        columns.required("advantages", "the policy loss"),
        eps_clip=settings.eps_clip,
        eps_clip_high=settings.eps_clip_high,
    )
    sums = {"ppo_kl": policy.ppo_kl, "pg_clipfrac": policy.clipped}
    pg_loss = policy.loss
    if settings.use_tis:
        pg_loss = _truncated(pg_loss, old, columns, settings, sums)
    loss = pg_total = columns.total(pg_loss)
    terms = {"pg_loss": pg_total}
    if entropy is not None:
        keeps_gradient = entropy if settings.entropy_coef else entropy.detach()
        terms["entropy_loss"] = columns.total(keeps_gradient)
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * terms["entropy_loss"]
    if settings.use_kl_loss:
        kl = kl_per_token(
            log_probs,
            columns.required("ref_log_probs", "--use-kl-loss"),
            kind=settings.kl_loss_type,
            importance_ratio=policy.ratio if settings.use_unbiased_kl else None,
        )
        terms["kl_loss"] = columns.total(kl)
        if settings.kl_loss_coef:
            loss = loss + settings.kl_loss_coef * terms["kl_loss"]
    sums |= _engine_difference(columns, old)
    terms |= {name: columns.total(values) for name, values in sums.items()}
    return LossSums(
        loss=loss,
        terms={"loss": loss.detach()} | {k: v.detach() for k, v in terms.items()},
        count=columns.count(),
        vacuous=vacuous,
    )


def _old_log_probs(
    columns: _Columns, log_probs: Tensor, settings: AlgorithmSettings
) -> tuple[Tensor, tuple[str, ...]]:
    """Log-probs the ratio is taken against, and what is zero by construction then."""
    if settings.use_rollout_logprobs:
        old = columns.required("rollout_log_probs", "--use-rollout-logprobs")
        return old, ()
    old = columns.optional("log_probs")
    if old is None:
        return log_probs.detach(), VACUOUS_WITHOUT_OLD
    return old, ()


def _truncated(
    pg_loss: Tensor,
    old: Tensor,
    columns: _Columns,
    settings: AlgorithmSettings,
    sums: dict[str, Tensor],
) -> Tensor:
    """The loss weighed by truncated importance sampling; its metrics go to ``sums``."""
    terms = importance_terms(
        old,
        columns.required("rollout_log_probs", "--use-tis"),
        clip_low=settings.tis_clip_low,
        clip_high=settings.tis_clip,
    )
    sums |= {
        "tis": terms.ratio,
        "tis_clipfrac": terms.clipped,
        "tis_abs": (terms.ratio - 1).abs(),
    }
    return pg_loss * terms.weight


def _engine_difference(columns: _Columns, old: Tensor) -> dict[str, Tensor]:
    """How far the engine's log-probs are from the trainer's, when both exist."""
    rollout = columns.optional("rollout_log_probs")
    if rollout is None:
        return {}
    train = columns.optional("log_probs")
    if train is None:
        train = old
    return {
        "train_rollout_logprob_abs_diff": (train - rollout).abs(),
        "train_rollout_prob_abs_diff": (train.exp() - rollout.exp()).abs(),
    }


def _joined(parts: Sequence[NDArray[np.generic]]) -> Tensor:
    """Arrays of the rows as one tensor of the arrays' dtype."""
    return torch.from_numpy(np.concatenate(parts))
