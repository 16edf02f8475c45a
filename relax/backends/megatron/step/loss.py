"""The loss of one micro-batch, put together from `relax.algorithms`.

Letters: N response tokens of all rows of the micro-batch, one after the other.

Every term leaves here as a sum with its count: of samples, or of unmasked tokens under
``--calculate-per-token-loss``. megatron adds the loss's counts over micro-batches and
ranks and divides the gradients once; metrics are added up and divided the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relax.algorithms.estimators import Surrogate, estimator_of
from relax.algorithms.kl import kl_per_token
from relax.algorithms.masks import sample_mean_sum, token_sum
from relax.algorithms.policy_loss import (
    PolicyLossTerms,
    importance_terms,
    policy_loss,
    sequence_policy_loss,
    truncated_policy_loss,
)
from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.backends.megatron.step.batch import MicroBatch
from relax.backends.megatron.step.logprob import TokenScores
from relax.errors import ArgumentError

VACUOUS_WITHOUT_OLD = ("ppo_kl", "pg_clipfrac")
"""Terms that are zero by construction when the old log-probs are the current ones."""


class Part(NamedTuple):
    """A micro-batch's share of a metric.

    Attributes:
        total: Sum over samples of their token means, or over tokens; scalar.
        count: Samples or unmasked tokens behind it; 0 when nothing could be measured.
    """

    total: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """What a micro-batch adds to its step.

    Attributes:
        loss: To be minimised, carries the gradient.
        terms: Metric name → share, detached; the same names on every rank.
        vacuous: Terms that could not have been anything but zero.
    """

    loss: Part
    terms: dict[str, Part]
    vacuous: tuple[str, ...]


@dataclass(kw_only=True)
class _Columns:
    """Per-token columns of a micro-batch on its device, and the way they are summed.

    Attributes:
        now: Log-probs of now without gradient, [N].
    """

    batch: MicroBatch
    now: Tensor
    per_token: bool
    masks: list[Tensor] = field(init=False)
    _keep: Tensor = field(init=False)

    def __post_init__(self) -> None:
        mask = _joined([sample.loss_mask for sample in self.batch.samples])
        mask = mask.to(self.now.device)
        self._keep = mask.bool()
        self.masks = list(mask.split(self.batch.response_lengths))

    def optional(self, name: str) -> Tensor | None:
        """The column over all rows, [N], or None when the samples have none.

        What lies under the mask takes no part: there a log-prob is that of now, an
        advantage 0. Left out of a sum alone, a NaN or an overflowing ratio would still
        come back as 0 · NaN in the gradient of every weight.
        """
        parts = [getattr(sample, name) for sample in self.batch.samples]
        if any(part is None for part in parts):
            return None
        column = _joined(parts).to(self.now.device)
        neutral = self.now if name.endswith("log_probs") else torch.zeros_like(column)
        return torch.where(self._keep, column, neutral)

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

    def part(self, values: Tensor) -> Part:
        """The share of a metric with a value for every response token, [N]."""
        if not self.batch.samples:
            # Nothing to measure, but the backward pass needs the graph.
            return Part(values.sum(), 0)
        pieces = values.split(self.batch.response_lengths)
        return self.part_of_rows(pieces, self.masks)

    def part_of_rows(self, pieces: Sequence[Tensor], masks: Sequence[Tensor]) -> Part:
        """The share of a metric that some rows have, each [R] with its mask."""
        if not pieces:
            return Part(torch.zeros((), device=self.now.device), 0)
        if self.per_token:
            sums = [token_sum(p, mask) for p, mask in zip(pieces, masks, strict=True)]
            total = torch.stack([part.total for part in sums]).sum()
            return Part(total, sum(int(part.num_tokens) for part in sums))
        return Part(*sample_mean_sum(pieces, masks))


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
        scores: Of the response tokens now, with gradient.
        batch: The micro-batch; its samples have advantages.
        settings: Clips and coefficients.
        per_token: Weigh each token the same instead of each sample.

    Raises:
        ArgumentError: A column that a setting needs is missing.
    """
    log_probs = scores.log_probs
    columns = _Columns(batch=batch, now=log_probs.detach(), per_token=per_token)
    old, vacuous = _old_log_probs(columns, settings)
    policy = _policy(log_probs, old, columns, settings)
    sums = {"ppo_kl": policy.ppo_kl, "pg_clipfrac": policy.clipped}
    pg_loss = policy.loss
    if settings.use_tis:
        pg_loss = _truncated(pg_loss, old, columns, settings, sums)
    terms = {"pg_loss": columns.part(pg_loss)}
    loss, count = terms["pg_loss"]
    for name, weight, values in _weighed_terms(scores, old, columns, settings):
        # A term without a weight is measured, but cannot spoil the loss.
        terms[name] = columns.part(values if weight else values.detach())
        if weight:
            loss = loss + weight * terms[name].total
    terms |= {name: columns.part(values) for name, values in sums.items()}
    terms |= {"loss": Part(loss, count)} | _engine_difference(columns, old)
    return LossSums(
        loss=Part(loss, count),
        terms={name: Part(t.detach(), n) for name, (t, n) in terms.items()},
        vacuous=vacuous,
    )


def _policy(
    log_probs: Tensor, old: Tensor, columns: _Columns, settings: AlgorithmSettings
) -> PolicyLossTerms:
    """The policy loss of each response token, as the estimator has it."""
    advantages = columns.required("advantages", "the policy loss")
    surrogate = estimator_of(settings.advantage_estimator).surrogate
    clips = {"eps_clip": settings.eps_clip, "eps_clip_high": settings.eps_clip_high}
    if surrogate is Surrogate.TRUNCATED_WEIGHT:
        return truncated_policy_loss(log_probs, old, advantages, **clips)
    if surrogate is Surrogate.SEQUENCE_CLIPPED and columns.batch.samples:
        lengths = columns.batch.response_lengths
        pieces = (values.split(lengths) for values in (log_probs, old, advantages))
        return sequence_policy_loss(*pieces, columns.masks, **clips)
    return policy_loss(log_probs, old, advantages, **clips)


def _weighed_terms(
    scores: TokenScores,
    old: Tensor,
    columns: _Columns,
    settings: AlgorithmSettings,
) -> Iterator[tuple[str, float, Tensor]]:
    """Terms beside the policy loss: name, weight in the loss, values [N]."""
    if scores.entropy is not None:
        yield "entropy_loss", -settings.entropy_coef, scores.entropy
    if settings.use_kl_loss:
        log_probs = scores.log_probs
        ratio = (log_probs - old).exp() if settings.use_unbiased_kl else None
        kl = kl_per_token(
            log_probs,
            columns.required("ref_log_probs", "--use-kl-loss"),
            kind=settings.kl_loss_type,
            importance_ratio=ratio,
        )
        yield "kl_loss", settings.kl_loss_coef, kl


def _old_log_probs(
    columns: _Columns, settings: AlgorithmSettings
) -> tuple[Tensor, tuple[str, ...]]:
    """Log-probs the ratio is taken against, and what is zero by construction then."""
    if settings.use_rollout_logprobs:
        old = columns.required("rollout_log_probs", "--use-rollout-logprobs")
        return old, ()
    old = columns.optional("log_probs")
    if old is None:
        return columns.now, VACUOUS_WITHOUT_OLD
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


def _engine_difference(columns: _Columns, old: Tensor) -> dict[str, Part]:
    """How far the engine's log-probs are from ours, over rows that have them."""
    train = columns.optional("log_probs")
    pieces = (old if train is None else train).split(columns.batch.response_lengths)
    by_log, by_prob, masks = [], [], []
    for sample, ours, mask in zip(
        columns.batch.samples, pieces, columns.masks, strict=True
    ):
        if sample.rollout_log_probs is not None:
            # tensor() copies: arrays out of Ray's object store cannot be written.
            theirs = torch.tensor(sample.rollout_log_probs, device=ours.device)
            by_log.append((ours - theirs).abs())
            by_prob.append((ours.exp() - theirs.exp()).abs())
            masks.append(mask)
    return {
        "train_rollout_logprob_abs_diff": columns.part_of_rows(by_log, masks),
        "train_rollout_prob_abs_diff": columns.part_of_rows(by_prob, masks),
    }


def _joined(parts: Sequence[NDArray[np.generic]]) -> Tensor:
    """Arrays of the rows as one tensor of the arrays' dtype."""
    if not parts:
        return torch.empty(0)
    return torch.from_numpy(np.concatenate(parts))
