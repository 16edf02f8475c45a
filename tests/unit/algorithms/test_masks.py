"""Masked reductions on ragged samples: empty masks, single tokens, NaN."""

from __future__ import annotations

import math

import pytest
import torch

from relax.algorithms.masks import num_empty_masks, sample_mean_sum, token_sum
from relax.errors import InternalError

F64 = torch.float64


def ragged() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    values = [
        torch.tensor(v, dtype=F64) for v in ([1.0, 2.0, 9.0], [4.0], [7.0, 7.0], [])
    ]
    masks = [torch.tensor(m) for m in ([1, 1, 0], [1], [0, 0], [])]
    return values, masks


def test_closed_forms():
    values, masks = ragged()
    total, num_samples = sample_mean_sum(values, masks)
    assert total.item() == (1.0 + 2.0) / 2 + 4.0
    assert num_samples == 4
    assert num_empty_masks(masks) == 2
    total, num_tokens = token_sum(torch.cat(values), torch.cat(masks))
    assert (total.item(), num_tokens.item()) == (7.0, 3)


def test_each_token_of_a_sample_pulls_equally():
    values, masks = ragged()
    values = [value.requires_grad_() for value in values]
    sample_mean_sum(values, masks).total.backward()
    assert values[0].grad.tolist() == [0.5, 0.5, 0.0]
    assert values[1].grad.tolist() == [1.0]
    packed = torch.randn(6, dtype=F64, requires_grad=True)
    mask = torch.tensor([1, 0, 1, 1, 0, 1])
    token_sum(packed, mask).total.backward()
    assert packed.grad.tolist() == mask.tolist()


def test_gradient():
    mask = torch.tensor([1, 0, 1])
    values = torch.randn(3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: sample_mean_sum([x], [mask]).total, values
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_masked_bad_values_stay_out_and_unmasked_ones_come_through(bad):
    values = torch.tensor([1.0, bad])
    assert token_sum(values, torch.tensor([1, 0])).total.item() == 1.0
    assert not math.isfinite(token_sum(values, torch.tensor([1, 1])).total.item())
    assert sample_mean_sum([values], [torch.tensor([1, 0])]).total.item() == 1.0


def test_padding_and_order_do_not_matter():
    values, masks = ragged()
    padded = [torch.cat([v, torch.full((3,), 99.0, dtype=F64)]) for v in values]
    pad_masks = [torch.cat([m, torch.zeros(3)]) for m in masks]
    straight = sample_mean_sum(values, masks)
    assert sample_mean_sum(padded, pad_masks) == straight
    assert sample_mean_sum(values[::-1], masks[::-1]) == straight


def test_pieces_of_a_sample_add_up_with_the_whole_denominator():
    value, mask = torch.randn(10, dtype=F64), torch.tensor([1, 0] * 5)
    whole = sample_mean_sum([value], [mask]).total
    pieces = sum(
        sample_mean_sum([value[s]], [mask[s]], denominators=[5]).total
        for s in (slice(3), slice(3, 4), slice(4, 10))
    )
    torch.testing.assert_close(whole, pieces)


def test_mismatches_are_refused():
    with pytest.raises(InternalError, match="no sample"):
        sample_mean_sum([], [])
    with pytest.raises(InternalError, match="one shape"):
        token_sum(torch.zeros(3), torch.ones(1))
    with pytest.raises(ValueError, match="zip"):
        sample_mean_sum([torch.zeros(1)], [])
