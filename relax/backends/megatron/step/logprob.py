"""Log-probabilities and entropies of chosen tokens, from logits split over ranks.

Letters: N response tokens, V this rank's columns of the vocabulary.

With x = logits / temperature over the real vocabulary (padded columns left out):

    log_probs = x[target] - logsumexp(x)
    entropy   = logsumexp(x) - Σ softmax(x) · x

Everything is float32 whatever the logits are. Rows are worked on in chunks, and the
backward pass computes the softmax again instead of keeping it, so that beside the
logits and their gradient no [N, V] tensor is ever held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK_BYTES = 64 * 1024**2
"""Size of the float32 working copy of a chunk of rows."""


class VocabPart(NamedTuple):
    """This rank's columns of the vocabulary.

    Attributes:
        start: Id of the first column.
        width: Columns that are real tokens; padded ones come after them.
        group: Ranks that hold the other columns; None when this rank has them all.
    """

    start: int
    width: int
    group: dist.ProcessGroup | None


class TokenScores(NamedTuple):
    """What the model says about each response token.

    Attributes:
        log_probs: Of the token that is there, nats, float32 [N].
        entropy: Of the distribution it was drawn from, nats, float32 [N]; None when
            not asked for.
    """

    log_probs: Tensor
    entropy: Tensor | None


def token_scores(
    logits_NV: Tensor,  # noqa: N803
    targets_N: Tensor,  # noqa: N803
    *,
    temperature: float,
    part: VocabPart,
    entropy: bool,
) -> TokenScores:
    """Scores tokens.

    Args:
        logits_NV: Raw logits, padded columns included, any float dtype, [N, V].
        targets_N: Token ids, int64 [N].
        temperature: Logits are divided by it, as the sampler did.
        part: Which columns these are.
        entropy: Also compute the entropy.

    Returns:
        The scores, differentiable with respect to the logits.
    """
    log_probs, entropies = _TokenScores.apply(
        logits_NV, targets_N, temperature, part, entropy
    )
    return TokenScores(log_probs, entropies if entropy else None)


class _TokenScores(torch.autograd.Function):
    """The two formulas above and their gradients.

    With p = softmax(x): d log_probs / dx = onehot(target) - p, and
    d entropy / dx = -p · (log p + entropy).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        temperature: float,
        part: VocabPart,
        with_entropy: bool,  # noqa: FBT001
    ) -> tuple[Tensor, Tensor]:
        dtype = _working_dtype(logits)
        log_norm = logits.new_empty(len(targets), dtype=dtype)
        chosen = torch.zeros_like(log_norm)
        expected = torch.zeros_like(log_norm)
        for rows in _chunks(logits, part):
            scaled = _scaled(logits, rows, temperature, part)
            log_norm[rows] = _log_sum_exp(scaled, part)
            chosen[rows] = _chosen(scaled, targets[rows], part)
            if with_entropy:
                probs = (scaled - log_norm[rows, None]).exp_()
                expected[rows] = _summed((probs * scaled).sum(-1), part)
        entropy = log_norm - expected
        ctx.save_for_backward(logits, targets, log_norm, entropy)
        ctx.temperature, ctx.part = temperature, part
        ctx.set_materialize_grads(False)
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return chosen - log_norm, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits, targets, log_norm, entropy = ctx.saved_tensors
        width = ctx.part.width
        grad = torch.zeros_like(logits)
        for rows in _chunks(logits, ctx.part) if width else []:
            log_p = _scaled(logits, rows, ctx.temperature, ctx.part)
            log_p.sub_(log_norm[rows, None])
            probs = log_p.exp()
            pull = torch.zeros_like(probs)
            if grad_log_probs is not None:
                upstream = grad_log_probs[rows]
                local, mine = _local_targets(targets[rows], ctx.part)
                pull.addcmul_(probs, upstream[:, None], value=-1)
                at_target = torch.where(mine, upstream, 0)
                pull.scatter_add_(1, local[:, None], at_target[:, None])
            if grad_entropy is not None:
                surprise = log_p.add_(entropy[rows, None]).mul_(probs)
                pull.addcmul_(surprise, grad_entropy[rows, None], value=-1)
            grad[rows, :width] = pull.div_(ctx.temperature)
        return grad, None, None, None, None


def _working_dtype(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _chunks(logits: Tensor, part: VocabPart) -> list[slice]:
    row_bytes = max(part.width, 1) * 4
    step = max(1, CHUNK_BYTES // row_bytes)
    return [slice(at, at + step) for at in range(0, len(logits), step)]


def _scaled(logits: Tensor, rows: slice, temperature: float, part: VocabPart) -> Tensor:
    real = logits[rows, : part.width].to(_working_dtype(logits))
    return real / temperature


def _log_sum_exp(scaled: Tensor, part: VocabPart) -> Tensor:
    if part.group is None:
        return torch.logsumexp(scaled, dim=-1)
    # A rank may hold nothing but padding, and then has no maximum of its own.
    lowest = torch.finfo(scaled.dtype).min
    top = scaled.amax(-1) if part.width else scaled.new_full((len(scaled),), lowest)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=part.group)
    return top + _summed((scaled - top[:, None]).exp().sum(-1), part).log()


def _chosen(scaled: Tensor, targets: Tensor, part: VocabPart) -> Tensor:
    if not part.width:
        return _summed(scaled.new_zeros(len(targets)), part)
    local, mine = _local_targets(targets, part)
    values = scaled.gather(1, local[:, None]).squeeze(1)
    return _summed(torch.where(mine, values, 0), part)


def _local_targets(targets: Tensor, part: VocabPart) -> tuple[Tensor, Tensor]:
    """Column of each target on this rank, and whether it is on this rank."""
    local = targets - part.start
    mine = (local >= 0) & (local < part.width)
    return torch.where(mine, local, 0), mine


def _summed(values: Tensor, part: VocabPart) -> Tensor:
    if part.group is not None:
        dist.all_reduce(values, group=part.group)
    return values
