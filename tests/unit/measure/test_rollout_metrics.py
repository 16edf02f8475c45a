"""A rollout's statistics: upstream's names, formulas and what is absent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relax.errors import RecordError
from relax.measure.logprob_metrics import logprob_metrics
from relax.measure.reduction import Mean, Sum, metric_values
from relax.measure.rollout_metrics import RolloutColumns, pass_rates, rollout_metrics


def columns(**changes) -> RolloutColumns:
    known = {
        "rewards": [1.0, 0.0, 0.0, 0.0, None, 1.0],
        "group_index": [0, 0, 1, 1, 2, 2],
        "effective_lengths": [3, 1, 8, 4, 5, 9],
        "statuses": ["completed", "truncated"] * 3,
        "responses": ["a", "b", "no " * 9000, "d", "", "f"],
        "stop_reasons": ["stop", "length"] * 3,
    }
    return RolloutColumns(**(known | changes))


def test_names_and_values():
    found = rollout_metrics(columns(), passrate=True)
    assert metric_values(found) == pytest.approx(
        {
            "rollout/response_len/mean": 5.0,
            "rollout/response_len/median": 4.5,
            "rollout/response_len/max": 9,
            "rollout/response_len/min": 1,
            "rollout/reward_missing": 1,
            "rollout/reward_nonfinite": 0,
            "rollout/raw_reward": 0.4,
            "rollout/zero_std/count_0.0": 1,
            "rollout/zero_std/count_1.0": 1,
            "rollout/zero_std/frac": 2 / 3,
            "rollout/truncated_ratio": 0.5,
            "rollout/repetition_frac": 1 / 6,
            "rollout/stop_reason/length/count": 3,
            "rollout/stop_reason/length/ratio": 0.5,
            "rollout/stop_reason/stop/count": 3,
            "rollout/stop_reason/stop/ratio": 0.5,
            "rollout/passrate/pass@1": (0.5 + 0 + 0.5) / 3,
            "rollout/passrate/pass@2": 2 / 3,
        }
    )


def test_absent_rewards_have_no_mean_and_nan_is_counted():
    none = rollout_metrics(columns(rewards=[None] * 6))
    assert "rollout/raw_reward" not in none
    assert none["rollout/reward_missing"] == Sum(6)
    broken = rollout_metrics(columns(rewards=[math.nan, 0.0, 1.0, 1.0, 2.0, 2.0]))
    assert broken["rollout/reward_nonfinite"] == Sum(1)
    assert math.isnan(broken["rollout/raw_reward"].value)


def test_pass_rate_is_the_unbiased_estimator():
    found = pass_rates([1.0, 0.0, 0.0, 0.99], [0] * 4)
    values = [round(found[f"passrate/pass@{k}"].value, 12) for k in (1, 2, 4)]
    assert values == [0.25, 0.5, 1.0]


def test_unequal_columns_are_refused():
    with pytest.raises(RecordError, match="different lengths"):
        columns(rewards=[1.0])


def test_per_sample_mean_counts_an_empty_mask_and_skips_an_absent_column():
    masks = [np.array([1, 1, 0]), np.array([0]), np.array([1])]
    log_probs = [np.array([-1.0, -3.0, 9.0]), np.array([-5.0]), None]
    found = logprob_metrics({"log_probs": log_probs, "entropy": [None] * 3}, masks)
    assert found["rollout/log_probs"] == Mean(-2.0, 2)
    assert "rollout/entropy" not in found
    assert found["rollout/tokens_unmasked"] == Sum(3)
    assert found["rollout/tokens_masked"] == Sum(2)
    assert not any(key.startswith(("logprob_", "rollout/kl")) for key in found)


def test_equal_bits_give_kl_zero_and_one_moved_ulp_is_seen():
    log_probs = [np.float32([-1.5, -0.25]), np.float32([-2.0])]
    masks = [np.ones(2, np.int8), np.ones(1, np.int8)]
    same = logprob_metrics({"log_probs": log_probs, "ref_log_probs": log_probs}, masks)
    assert metric_values(same)["rollout/kl"] == 0.0
    assert metric_values(same)["rollout/kl_k3"] == 0.0
    assert same["logprob_ref/unequal"] == Sum(0)
    moved = [log_probs[0], np.nextafter(log_probs[1], np.float32(0))]
    near = logprob_metrics({"log_probs": log_probs, "ref_log_probs": moved}, masks)
    assert near["logprob_ref/unequal"] == Sum(1)
    assert near["logprob_ref/ulp_max"].value == 1
    assert 0 < near["rollout/kl_k3"].value < 1e-13


def test_nonfinite_values_are_counted_under_a_mask_apart():
    masks = [np.array([1, 0, 1])]
    values = [np.array([np.nan, np.nan, -np.inf])]
    found = logprob_metrics({"log_probs": values, "ref_log_probs": values}, masks)
    assert found["nonfinite/log_probs"] == Sum(2)
    assert found["nonfinite_masked/log_probs"] == Sum(1)
    assert math.isnan(found["rollout/log_probs"].value)
    assert found["logprob_ref/abs_diff"].value is None
    assert "logprob_ref/max_abs" not in found


def test_a_misaligned_column_names_the_sample():
    with pytest.raises(RecordError, match=r"samples\[0\].log_probs"):
        logprob_metrics({"log_probs": [np.zeros(2)]}, [np.ones(3)])
