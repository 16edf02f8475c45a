"""Masked sums with their counts: the only two reductions a loss is made of.

Shapes: R response tokens of one sample, T packed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relax.algorithms.shapes import require_same_shape
from relax.errors import InternalError


class SampleMeanSum(NamedTuple):
    """Sum over samples of the per-sample masked token mean, and the samples behind it.

    Attributes:
        total: Scalar tensor with gradient.
        num_samples: Samples, those with an empty mask included.
    """

    total: Tensor
    num_samples: int


class TokenSum(NamedTuple):
    """Sum over unmasked tokens, and their number.

    Attributes:
        total: Scalar tensor with gradient.
        num_tokens: Scalar int64 tensor.
    """

    total: Tensor
    num_tokens: Tensor


def sample_mean_sum(
    values: Sequence[Tensor],
    masks: Sequence[Tensor],
    *,
    denominators: Sequence[float] | None = None,
) -> SampleMeanSum:
    """Adds up each sample's masked token mean (upstream's default loss reduction).

    A sample whose mask is empty adds nothing and still counts as a sample, as upstream
    has it: there the mean of such a sample is 0 / 1, so the batch's divisor, which is
    fixed before any mask is known, stays the number of samples. Here that is an own
    branch instead of a denominator clamped to 1, so that a fractional denominator is
    never rounded up; count such samples with `num_empty_masks`.

    Masked values are left out before the sum: a NaN under a mask does not reach it, an
    unmasked one does.

    Args:
        values: Per-token values of each sample, each of shape [R].
        masks: Loss masks (0 or 1, any dtype), each of the same shape.
        denominators: Unmasked tokens of each whole sample, when ``values`` hold only
            this rank's part of it. None: counted from ``masks``. Given as host numbers,
            no device needs to be waited for.

    Returns:
        Sum and number of samples; both add over micro-batches and ranks (a sample
        split over ranks counts once: divide by the step's own number of samples).

    Raises:
        InternalError: Shapes or numbers of samples differ, or there is no sample.
    """
    if not values:
        raise InternalError("sample_mean_sum was given no sample")
    if denominators is None:
        denominators = [int(mask.bool().sum()) for mask in masks]
    total = values[0].new_zeros(())
    for value, mask, denominator in zip(values, masks, denominators, strict=True):
        masked_total = token_sum(value, mask).total
        # The sum over an empty mask is 0, and keeps the way to the gradients.
        total = total + (masked_total / denominator if denominator else masked_total)
    return SampleMeanSum(total, len(values))


def token_sum(values: Tensor, mask: Tensor) -> TokenSum:
    """Adds up the unmasked tokens (``--calculate-per-token-loss``).

    Args:
        values: Per-token values, any shape.
        mask: Loss mask (0 or 1, any dtype), same shape.

    Returns:
        Sum and number of unmasked tokens; an empty mask gives 0 and 0.

    Raises:
        InternalError: The shapes differ.
    """
    require_same_shape(values=values, mask=mask)
    keep = mask.bool()
    # A product with the mask would let a NaN under a 0 through.
    return TokenSum(torch.where(keep, values, 0.0).sum(), keep.sum())


def num_empty_masks(masks: Sequence[Tensor]) -> int:
    """Number of samples in which no token counts."""
    return sum(not bool(mask.bool().any()) for mask in masks)
