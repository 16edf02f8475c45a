"""Sampling a batch at once, each row with its own temperature, cuts and draw.

Shapes: B rows, V vocabulary. Each row is sampled by inverting its cumulative
distribution at one uniform number of its own, so what a row draws does not depend on
which other rows are there: the same seed gives the same tokens in any batch, up to a
draw that falls within rounding (about 1e-7) of a boundary between two tokens.
"""
# The capitals at the end of a tensor's name are its shape.
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor


def draw_uniforms(*, count: int, seed: int | None) -> Tensor:
    """The uniform numbers of one request, one a token.

    Args:
        count: How many tokens the response may have.
        seed: Of the request; None seeds from the operating system.

    Returns:
        float64 [count] in [0, 1).
    """
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def sample_tokens(
    logits_BV: Tensor,
    *,
    temperature_B: Tensor,
    top_p_B: Tensor,
    top_k_B: Tensor,
    uniform_B: Tensor,
) -> tuple[Tensor, Tensor]:
    """Sample one token a row.

    Args:
        logits_BV: Floating point [B, V].
        temperature_B: float32 [B]; 0 takes the most likely token.
        top_p_B: float32 [B]; a token is kept while the probability of those before it
            is at most this. 1.0 keeps all.
        top_k_B: int64 [B]; -1 keeps all. Both cuts are made on the whole
            distribution, as SGLang makes them.
        uniform_B: float64 [B] in [0, 1).

    Returns:
        Token ids int64 [B], and float32 [B] their log-softmax at the temperature
        (1 where it is 0), before the cuts. Rows with non-finite logits give non-finite
        log-probs and some valid id.
    """
    greedy_B = temperature_B == 0
    divisor_B = torch.where(greedy_B, torch.ones_like(temperature_B), temperature_B)
    scaled_BV = logits_BV.float() / divisor_B[:, None]
    log_probs_BV = torch.log_softmax(scaled_BV, dim=-1)
    probs_BV = log_probs_BV.exp()
    ids_B = _invert(probs_BV, uniform_B=uniform_B)
    cut_B = ((top_p_B < 1) | (top_k_B > 0)) & ~greedy_B
    if bool(cut_B.any()):
        rows = cut_B.nonzero().squeeze(1)
        ids_B[rows] = _invert_cut(
            probs_BV[rows],
            top_p_B=top_p_B[rows],
            top_k_B=top_k_B[rows],
            uniform_B=uniform_B[rows],
        )
    if bool(greedy_B.any()):
        ids_B = torch.where(greedy_B, scaled_BV.argmax(dim=-1), ids_B)
    return ids_B, log_probs_BV.gather(1, ids_B[:, None]).squeeze(1)


def _invert(probs_BV: Tensor, *, uniform_B: Tensor) -> Tensor:
    """First index whose cumulative probability exceeds the draw."""
    cumulative_BV = probs_BV.double().cumsum(dim=-1)
    total_B = cumulative_BV[:, -1]
    # Below the total even after rounding, so no token of probability 0 is drawn.
    below_B = torch.nextafter(total_B, torch.zeros_like(total_B))
    target_B = torch.minimum(uniform_B * total_B, below_B)
    ids_B = torch.searchsorted(cumulative_BV, target_B[:, None], right=True)
    return ids_B.squeeze(1).clamp_(max=probs_BV.shape[1] - 1)


def _invert_cut(
    probs_BV: Tensor, *, top_p_B: Tensor, top_k_B: Tensor, uniform_B: Tensor
) -> Tensor:
    """As `_invert`, over the most likely tokens only."""
    sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = sorted_BV.double().cumsum(dim=-1) - sorted_BV
    rank_V = torch.arange(probs_BV.shape[1])
    beyond_k_BV = (top_k_B[:, None] > 0) & (rank_V[None, :] >= top_k_B[:, None])
    beyond_p_BV = before_BV > top_p_B[:, None].double()
    kept_BV = sorted_BV.masked_fill(beyond_k_BV | beyond_p_BV, 0.0)
    place_B = _invert(kept_BV, uniform_B=uniform_B)
    return order_BV.gather(1, place_B[:, None]).squeeze(1)
