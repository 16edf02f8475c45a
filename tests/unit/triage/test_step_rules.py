"""grad_norm, ppo_kl and rewards: fault, healthy look-alike, absent, masked, zero."""

from __future__ import annotations

import math

import pytest

from relax.measure.reduction import Gauge, Mean, Sum
from relax.triage.evidence import RolloutEvidence
from relax.triage.rules import grad_norm, ppo_kl, rewards_have_signal
from relax.triage.verdict import Status

GRAD = grad_norm.RULE.check
PPO = ppo_kl.RULE.check
REWARDS = rewards_have_signal.RULE.check
MASKED = {"rollout/tokens_unmasked": Sum(0)}


def evidence(metrics=None, *, rollout_id=0, **kw) -> RolloutEvidence:
    return RolloutEvidence(rollout_id=rollout_id, metrics=metrics or {}, **kw)


@pytest.mark.parametrize(
    ("value", "rollout_id", "status"),
    [
        (0.4, 0, Status.PASS),
        (1.6, 0, Status.PASS),
        (30.0, 0, Status.WARN),
        (3000.0, 0, Status.FAIL),
        (3000.0, 9, Status.WARN),
        (math.nan, 0, Status.NON_FINITE),
        (math.inf, 4, Status.NON_FINITE),
        (0.0, 0, Status.WARN),
    ],
)
def test_grad_norm(value, rollout_id, status):
    verdict = GRAD(evidence({"train/grad_norm": Gauge(value)}, rollout_id=rollout_id))
    assert verdict.status is status


def test_grad_norm_absent_masked_and_zero():
    assert GRAD(evidence()).status is Status.NOT_RUN
    zero = {"train/grad_norm": Gauge(0.0)}
    assert GRAD(evidence(zero | MASKED)).status is Status.VACUOUS
    flat = zero | {"rollout/zero_std/frac": Mean(8, 8)}
    assert GRAD(evidence(flat)).status is Status.VACUOUS
    contrast = zero | {"rollout/zero_std/frac": Mean(2, 8)}
    assert GRAD(evidence(contrast)).status is Status.FAIL


def test_ppo_kl_says_when_it_cannot_fail():
    zero = {"train/ppo_kl": Mean(0.0, 8)}
    assert PPO(evidence(zero, steps_per_rollout=1)).status is Status.VACUOUS
    counted = {"steps_per_rollout": 1, "log_probs_recomputed": True}
    assert PPO(evidence(zero, **counted)).status is Status.PASS
    for value in (-0.01, 0.01):
        moved = {"train/ppo_kl": Mean(value, 1)}
        assert PPO(evidence(moved, **counted)).status is Status.FAIL
    assert PPO(evidence(zero, steps_per_rollout=4)).status is Status.INFO
    assert PPO(evidence(zero)).status is Status.NOT_RUN
    assert PPO(evidence()).status is Status.NOT_RUN
    assert PPO(evidence(zero | MASKED, **counted)).status is Status.VACUOUS
    broken = {"train/ppo_kl": Mean(math.nan, 8)}
    assert PPO(evidence(broken, **counted)).status is Status.NON_FINITE


def rewards(*values, groups=(0, 0, 1, 1)) -> RolloutEvidence:
    columns = {"reward": list(values), "group_index": list(groups)}
    return evidence(columns=columns)


def test_rewards():
    assert REWARDS(rewards(1.0, 0.0, 0.0, 0.0)).status is Status.PASS
    assert REWARDS(rewards(0.0, 0.0, 0.0, 0.0)).status is Status.WARN
    assert REWARDS(rewards(1.0, 1.0, 0.0, 0.0)).status is Status.WARN
    assert REWARDS(rewards(1.0, math.nan, 0.0, 0.0)).status is Status.NON_FINITE
    assert REWARDS(rewards(None, None, None, None)).status is Status.NOT_RUN
    assert REWARDS(rewards(1.0, None, 1.0, 0.0)).numbers["missing"] == 1
    single = rewards(1.0, 0.0, 1.0, 0.0, groups=(0, 1, 2, 3))
    assert REWARDS(single).status is Status.VACUOUS
    assert REWARDS(evidence()).status is Status.NOT_RUN


def test_one_constant_points_at_the_grader():
    assert "reward function" in REWARDS(rewards(0.0, 0.0, 0.0, 0.0)).causes[0].text
    assert "task" in REWARDS(rewards(1.0, 1.0, 0.0, 0.0)).causes[0].text


def test_rewards_from_a_log():
    flat = {"rollout/zero_std/frac": Mean(4, 4), "rollout/raw_reward": Mean(0, 16)}
    assert REWARDS(evidence(flat)).status is Status.WARN
    broken = {"rollout/raw_reward": Mean(math.nan, 16)}
    assert REWARDS(evidence(broken)).status is Status.NON_FINITE
