"""The clipped surrogate and the importance weights, token by token."""

from __future__ import annotations

import math

import pytest
import torch

from relax.algorithms.policy_loss import importance_terms, policy_loss
from relax.errors import InternalError

F64 = torch.float64
CLIP = {"eps_clip": 0.2, "eps_clip_high": 0.28}


@pytest.mark.parametrize("advantage", [2.0, -2.0, 0.0])
@pytest.mark.parametrize("log_ratio", [-1.0, -0.1, 0.0, 0.1, 1.0])
def test_closed_form(advantage, log_ratio):
    terms = policy_loss(
        torch.tensor([-1.0 + log_ratio], dtype=F64),
        torch.tensor([-1.0], dtype=F64),
        torch.tensor([advantage], dtype=F64),
        **CLIP,
    )
    ratio = math.exp(log_ratio)
    limited = min(max(ratio, 0.8), 1.28)
    expected = max(-ratio * advantage, -limited * advantage)
    assert terms.loss.item() == pytest.approx(expected, abs=1e-12)
    assert terms.ppo_kl.item() == pytest.approx(-log_ratio, abs=1e-12)
    assert terms.ratio.item() == pytest.approx(ratio)
    assert bool(terms.clipped.item()) == (
        -limited * advantage > -ratio * advantage + 1e-12
    )


def test_gradient():
    old = torch.tensor([-1.0, -2.0, -0.5], dtype=F64)
    advantages = torch.tensor([1.0, -1.0, 0.3], dtype=F64)
    log_probs = (old + torch.tensor([0.05, -0.1, 0.9], dtype=F64)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: policy_loss(x, old, advantages, **CLIP).loss, log_probs
    )


def test_a_clipped_token_has_no_gradient():
    log_probs = torch.tensor([0.0, 0.0], requires_grad=True)
    terms = policy_loss(log_probs, torch.tensor([-1.0, 0.0]), torch.ones(2), **CLIP)
    terms.loss.sum().backward()
    assert terms.clipped.tolist() == [1.0, 0.0]
    assert log_probs.grad.tolist() == [0.0, -1.0]


def test_nan_reaches_its_own_loss_only():
    values = torch.tensor([-1.0, math.nan, -1.0])
    terms = policy_loss(values, torch.full((3,), -1.0), torch.ones(3), **CLIP)
    assert torch.isnan(terms.loss).tolist() == [False, True, False]


def test_a_broadcast_advantage_is_refused():
    with pytest.raises(InternalError, match="advantages"):
        policy_loss(torch.zeros(3), torch.zeros(3), torch.ones(1), **CLIP)


def test_importance_weights_are_limited_and_carry_no_gradient():
    train = torch.tensor([-1.0, -1.0, -1.0, math.nan], requires_grad=True)
    rollout = torch.tensor([-1.0, -3.0, 2.0, -1.0])
    terms = importance_terms(train, rollout, clip_low=0.5, clip_high=2.0)
    assert terms.weight[:3].tolist() == [1.0, 2.0, 0.5]
    assert terms.clipped.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert torch.isnan(terms.weight[3])
    assert not terms.weight.requires_grad
