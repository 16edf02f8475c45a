"""Baselines, returns and surrogates of every estimator against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.advantages import discounted_returns, leave_one_out_rewards
from relax.algorithms.estimators import ESTIMATORS, estimator_of
from relax.algorithms.policy_loss import (
    policy_loss,
    sequence_policy_loss,
    truncated_policy_loss,
)
from relax.arguments.foreign import ESTIMATORS as NAMES
from relax.errors import ArgumentError, InternalError

F64 = torch.float64
CLIP = {"eps_clip": 0.2, "eps_clip_high": 0.28}


def test_the_flag_and_the_table_know_the_same_estimators():
    assert tuple(ESTIMATORS) == NAMES
    with pytest.raises(ArgumentError, match="'ppo' is not known"):
        estimator_of("ppo")


class TestLeaveOneOut:
    def test_closed_form_with_interleaved_groups(self):
        rewards, groups = [1.0, 0.0, 0.5, 3.0, 0.25, -1.0], [7, 2, 7, 2, 7, 2]
        found = leave_one_out_rewards(
            torch.tensor(rewards, dtype=F64), torch.tensor(groups), group_size=3
        )
        for at, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
            others = [
                r
                for i, (r, g) in enumerate(zip(rewards, groups, strict=True))
                if g == group and i != at
            ]
            assert found[at].item() == pytest.approx(reward - sum(others) / 2)

    @pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e8 + 0.1])
    def test_equal_rewards_give_exactly_zero(self, reward):
        found = leave_one_out_rewards(
            torch.full((7,), reward), torch.zeros(7, dtype=torch.int64), group_size=None
        )
        assert torch.equal(found, torch.zeros(7))

    def test_a_group_of_one_gives_zero_and_a_nan_stays_in_its_group(self):
        found = leave_one_out_rewards(
            torch.tensor([5.0, 1.0, math.nan, 2.0, 4.0]),
            torch.tensor([0, 1, 1, 2, 2]),
            group_size=None,
        )
        assert found[0].item() == 0.0
        assert torch.isnan(found[1:3]).all()
        assert found[3:].tolist() == [-2.0, 2.0]


class TestDiscountedReturns:
    @given(
        kl=st.lists(st.floats(-3, 3), min_size=1, max_size=12),
        gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
        data=st.data(),
    )
    def test_closed_form_on_ragged_masks(self, kl, gamma, data):
        mask = data.draw(
            st.lists(st.integers(0, 1), min_size=len(kl), max_size=len(kl))
        )
        rewards = [-0.1 * k if m else 0.0 for k, m in zip(kl, mask, strict=True)]
        if any(mask):
            rewards[max(i for i, m in enumerate(mask) if m)] += 2.0
        expected = [
            sum(gamma ** (s - t) * rewards[s] for s in range(t, len(kl)))
            if mask[t]
            else 0.0
            for t in range(len(kl))
        ]
        found = discounted_returns(
            2.0,
            torch.tensor(kl, dtype=F64),
            torch.tensor(mask),
            kl_coef=0.1,
            gamma=gamma,
        )
        assert found.tolist() == pytest.approx(expected, abs=1e-9)

    def test_without_kl_and_discount_every_token_has_the_reward(self):
        mask = torch.tensor([1, 0, 1, 1, 0])
        found = discounted_returns(0.7, torch.zeros(5), mask, kl_coef=0.0, gamma=1.0)
        assert found.tolist() == pytest.approx([0.7, 0, 0.7, 0.7, 0])

    def test_what_lies_under_the_mask_is_not_looked_at(self):
        kl = torch.tensor([0.5, math.nan, 0.25])
        found = discounted_returns(
            1.0, kl, torch.tensor([1, 0, 1]), kl_coef=1.0, gamma=1.0
        )
        assert found.tolist() == pytest.approx([0.25, 0.0, 0.75])
        seen = discounted_returns(
            1.0, kl, torch.tensor([1, 1, 1]), kl_coef=1.0, gamma=1.0
        )
        assert torch.isnan(seen).tolist() == [True, True, False]


def ragged(seed=0, lengths=(5, 1, 9, 3), *, empty=3):
    """Log-probs, old ones, advantages and masks of samples; one mask is empty."""
    rng = np.random.default_rng(seed)
    columns = [
        [torch.tensor(rng.normal(m, s, n), dtype=F64) for n in lengths]
        for m, s in ((-2, 0.5), (-2, 0.5), (0, 1))
    ]
    masks = [torch.tensor(rng.random(n) > 0.3, dtype=torch.int8) for n in lengths]
    masks[1][:] = 1
    masks[empty][:] = 0
    return *columns, masks


class TestSequenceRatio:
    def test_closed_form(self):
        new, old, advantages, masks = ragged()
        terms = sequence_policy_loss(new, old, advantages, masks, **CLIP)
        at = 0
        for n, o, a, m in zip(new, old, advantages, masks, strict=True):
            keep = m.bool().numpy()
            gap = (n - o).numpy()[keep]
            ratio = math.exp(gap.mean()) if keep.any() else 1.0
            limited = min(max(ratio, 0.8), 1.28)
            expected = np.maximum(-ratio * a.numpy(), -limited * a.numpy())
            piece = slice(at, at + len(n))
            at += len(n)
            np.testing.assert_allclose(
                terms.loss[piece].numpy()[keep], expected[keep], atol=1e-12
            )
            if keep.any():
                np.testing.assert_allclose(terms.ratio[piece], ratio, atol=1e-12)
                np.testing.assert_allclose(terms.ppo_kl[piece], -gap.mean(), atol=1e-12)

    def test_gradient_goes_through_the_mean(self):
        new, old, advantages, masks = ragged(lengths=(4, 3, 2, 2))
        flat = torch.cat(new).requires_grad_()

        def loss(values):
            pieces = values.split([len(n) for n in new])
            return sequence_policy_loss(pieces, old, advantages, masks, **CLIP).loss

        assert torch.autograd.gradcheck(loss, flat)

    def test_one_token_samples_are_the_token_ratio(self):
        new, old, advantages, masks = ragged(lengths=(1, 1, 1, 1))
        for mask in masks:
            mask[:] = 1
        by_sequence = sequence_policy_loss(new, old, advantages, masks, **CLIP)
        columns = (torch.cat(column) for column in (new, old, advantages))
        by_token = policy_loss(*columns, **CLIP)
        for one, other in zip(by_sequence, by_token, strict=True):
            torch.testing.assert_close(one, other)

    def test_samples_do_not_mix(self):
        new, old, advantages, masks = ragged()
        together = sequence_policy_loss(new, old, advantages, masks, **CLIP).loss
        alone = [
            sequence_policy_loss([n], [o], [a], [m], **CLIP).loss
            for n, o, a, m in zip(new, old, advantages, masks, strict=True)
        ]
        assert torch.equal(together, torch.cat(alone))

    def test_no_sample_and_broadcasts_are_refused(self):
        with pytest.raises(InternalError, match="no sample"):
            sequence_policy_loss([], [], [], [], **CLIP)
        with pytest.raises(InternalError, match="advantages"):
            one = [torch.zeros(3)]
            sequence_policy_loss(one, one, [torch.zeros(1)], one, **CLIP)


class TestTruncatedWeight:
    @pytest.mark.parametrize("advantage", [2.0, -2.0, 0.0])
    @pytest.mark.parametrize("log_ratio", [-1.0, -0.1, 0.0, 0.1, 1.0])
    def test_closed_form_and_gradient(self, advantage, log_ratio):
        log_probs = torch.tensor([-1.0 + log_ratio], dtype=F64, requires_grad=True)
        terms = truncated_policy_loss(
            log_probs,
            torch.tensor([-1.0], dtype=F64),
            torch.tensor([advantage], dtype=F64),
            **CLIP,
        )
        ratio = math.exp(log_ratio)
        weight = min(ratio, 1.28) if advantage >= 0 else max(ratio, 0.8)
        assert terms.loss.item() == pytest.approx(-weight * advantage * (log_ratio - 1))
        assert bool(terms.clipped.item()) == (weight != pytest.approx(ratio))
        terms.loss.sum().backward()
        # The weight is a number: a token beyond its limit keeps its gradient.
        assert log_probs.grad.item() == pytest.approx(-weight * advantage)
