"""Group normalisation, returns and whitening against closed forms."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from relax.algorithms.advantages import (
    Moments,
    group_normalised_rewards,
    grpo_returns,
    token_moments,
    whiten,
)
from relax.errors import ArgumentError, InternalError

F64 = torch.float64


def normalise(rewards, groups, *, group_size=None, std=True, dtype=F64):
    return group_normalised_rewards(
        torch.tensor(rewards, dtype=dtype),
        torch.tensor(groups),
        group_size=group_size,
        std_normalization=std,
    )


def test_closed_form_with_interleaved_groups():
    rewards, groups = [1.0, 0.0, 0.5, 3.0, 0.25, -1.0], [7, 2, 7, 2, 7, 2]
    found = normalise(rewards, groups, group_size=3)
    for group in (2, 7):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        mean, std = statistics.mean(members), statistics.stdev(members)
        got = [f for f, g in zip(found.tolist(), groups, strict=True) if g == group]
        assert got == pytest.approx([(r - mean) / (std + 1e-6) for r in members])


def test_without_std_only_the_mean_goes():
    assert normalise([1.0, 3.0], [0, 0], std=False).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e8 + 0.1, -7.7, 0.0])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_equal_rewards_give_exactly_zero(reward, size):
    found = normalise([reward] * size, [0] * size, dtype=torch.float32)
    assert torch.equal(found, torch.zeros(size))


def test_a_group_of_one_gives_zero_and_not_nan():
    assert normalise([5.0, 1.0, 0.0], [0, 1, 1])[0].item() == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("std", [True, False])
def test_a_bad_reward_spoils_its_group_only(bad, std):
    found = normalise([bad, 1.0, 1.0, 0.0], [0, 0, 1, 1], std=std)
    assert not torch.isfinite(found[:2]).any()
    assert torch.isfinite(found[2:]).all()


def test_a_wrong_group_size_names_the_group():
    with pytest.raises(ArgumentError, match="group 4 has 1 samples"):
        normalise([1.0, 0.0, 1.0], [3, 3, 4], group_size=2)


def test_shapes_must_match():
    with pytest.raises(InternalError):
        normalise([1.0, 0.0], [0])


def test_permutation_moves_results_along():
    rewards, groups = torch.rand(24, dtype=F64), torch.arange(24) // 4
    order = torch.randperm(24)
    options = {"group_size": 4, "std_normalization": True}
    straight = group_normalised_rewards(rewards, groups, **options)[order]
    moved = group_normalised_rewards(rewards[order], groups[order], **options)
    torch.testing.assert_close(straight, moved)


def test_returns_broadcast_the_reward():
    assert grpo_returns(0.5, 3).tolist() == [0.5, 0.5, 0.5]
    assert grpo_returns(0.5, 0).shape == (0,)
    assert torch.isnan(grpo_returns(math.nan, 2)).all()
    with pytest.raises(InternalError, match="negative"):
        grpo_returns(0.5, -1)


def test_whitening_ignores_masked_tokens_and_adds_over_ranks():
    values = torch.randn(40, dtype=F64) * 3 + 5
    mask = torch.rand(40) > 0.3
    values[~mask] = math.nan
    left, right = (
        token_moments(values[s], mask[s]) for s in (slice(17), slice(17, 40))
    )
    together = Moments(*(a + b for a, b in zip(left, right, strict=True)))
    kept = whiten(values, together)[mask]
    assert kept.mean().item() == pytest.approx(0, abs=1e-12)
    assert kept.var().item() == pytest.approx(1, rel=1e-6)


def test_whitening_needs_two_tokens_and_survives_a_constant():
    with pytest.raises(ArgumentError, match="at least 2"):
        whiten(torch.ones(1), token_moments(torch.ones(1), torch.ones(1)))
    constant = torch.full((5,), 0.1)
    found = whiten(constant, token_moments(constant, torch.ones(5)))
    assert torch.allclose(found, torch.zeros(5), atol=1e-3)
