"""Rules on log-probs: the fault is found and named, the look-alike is not."""

from __future__ import annotations

import numpy as np
import pytest

from relax.measure.reduction import Gauge, Mean, Sum
from relax.triage.evidence import RolloutEvidence
from relax.triage.rules import (
    first_step_kl,
    log_probs_equal_ref,
    log_probs_magnitude,
    log_probs_vs_rollout,
)
from relax.triage.verdict import Status

EQUAL = log_probs_equal_ref.RULE.check
MAGNITUDE = log_probs_magnitude.RULE.check
ENGINE = log_probs_vs_rollout.RULE.check
KL = first_step_kl.RULE.check
ALL = (EQUAL, MAGNITUDE, ENGINE, KL)


@pytest.mark.parametrize("rule", ALL)
def test_healthy_first_rollout_passes(simulate, rule):
    assert rule(simulate()).status is Status.PASS


@pytest.mark.parametrize("rule", ALL)
@pytest.mark.parametrize("sharpness", [1.0, 20.0])
def test_an_unsure_and_a_sure_model_pass(simulate, rule, sharpness):
    assert rule(simulate(sharpness=sharpness)).status is Status.PASS


@pytest.mark.parametrize("rule", ALL)
def test_absent_columns_are_not_run(simulate, rule):
    verdict = rule(simulate(without=("log_probs", "ref_log_probs")))
    assert verdict.status is Status.NOT_RUN
    nothing = rule(RolloutEvidence(rollout_id=0))
    assert nothing.status is Status.NOT_RUN
    assert nothing.summary.startswith("no ")


@pytest.mark.parametrize("rule", ALL)
def test_all_tokens_masked_is_vacuous(simulate, rule):
    masks = [[0] * 40 for _ in range(32)]
    assert rule(simulate(columns={"loss_mask": masks})).status is Status.VACUOUS


@pytest.mark.parametrize("rule", ALL)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_token_is_non_finite_and_placed(simulate, rule, bad):
    columns = dict(simulate().columns)
    column = [values.copy() for values in columns["log_probs"]]
    column[5][7] = bad
    verdict = rule(simulate(columns={"log_probs": column}))
    assert verdict.status is Status.NON_FINITE
    assert (verdict.where.sample_index, verdict.where.position) == (105, 7)


@pytest.mark.parametrize("rule", ALL)
def test_a_bad_token_under_the_mask_is_no_fault(simulate, rule):
    columns = dict(simulate().columns)
    column = [values.copy() for values in columns["log_probs"]]
    column[5][7] = np.nan
    masks = [list(mask) for mask in columns["loss_mask"]]
    masks[5][7] = 0
    changed = {"log_probs": column, "ref_log_probs": column, "loss_mask": masks}
    assert rule(simulate(columns=changed)).status is Status.PASS


def test_all_zero_log_probs_are_a_value_like_any_other(simulate):
    zeros = [np.zeros(40, np.float32) for _ in range(32)]
    evidence = simulate(columns={"log_probs": zeros, "ref_log_probs": zeros})
    assert EQUAL(evidence).status is Status.PASS
    assert KL(evidence).status is Status.PASS
    assert MAGNITUDE(evidence).status is Status.FAIL
    assert ENGINE(evidence).status is Status.FAIL


def test_one_ulp_in_one_token_fails_equality_and_kl_with_its_place(simulate):
    columns = simulate().columns
    moved = [values.copy() for values in columns["log_probs"]]
    moved[3][11] = np.nextafter(moved[3][11], np.float32(0))
    evidence = simulate(columns={"ref_log_probs": moved})
    for rule in (EQUAL, KL):
        verdict = rule(evidence)
        assert verdict.status is Status.FAIL
        assert (verdict.where.sample_index, verdict.where.position) == (103, 11)
    assert "nondeterministic" in EQUAL(evidence).causes[0].text
    assert EQUAL(evidence).next_command == "relax-tui show RUN --rollout 0 --sample 103"


@pytest.mark.parametrize(
    ("again", "first_cause"), [(0, "other weights"), (900, "nondeterministic")]
)
@pytest.mark.parametrize("size", [1e-7, 0.5])
def test_passes_made_again_tell_kernels_from_weights(
    simulate, again, first_cause, size
):
    columns = simulate().columns
    moved = [values + np.float32(size) for values in columns["log_probs"]]
    metrics = {"logprob_repeat/unequal": Sum(again), "logprob_repeat/tokens": Sum(1280)}
    evidence = simulate(columns={"ref_log_probs": moved}, metrics=metrics)
    for rule in (EQUAL, KL):
        assert first_cause in rule(evidence).causes[0].text
    (_, repeated) = EQUAL(evidence).evidence
    assert f"{again} tokens" in repeated.text


def test_opposite_errors_that_cancel_in_the_mean_are_found(simulate):
    columns = simulate().columns
    moved = [values.copy() for values in columns["log_probs"]]
    moved[0][0] += np.float32(0.5)
    moved[0][1] -= np.float32(0.5)
    evidence = simulate(columns={"ref_log_probs": moved})
    assert abs(evidence.number("rollout/kl")) < 1e-7
    assert EQUAL(evidence).status is Status.FAIL
    assert KL(evidence).status is Status.FAIL
    assert "other weights" in EQUAL(evidence).causes[0].text


def test_after_training_a_difference_is_information(simulate):
    columns = simulate().columns
    moved = [values + np.float32(0.1) for values in columns["log_probs"]]
    for changes in (
        {"rollout_id": 3},
        {"weights_match_reference": False},
        {"arguments": {"load": "a", "ref_load": "b"}},
    ):
        evidence = simulate(columns={"ref_log_probs": moved}, **changes)
        assert EQUAL(evidence).status is Status.INFO
        assert KL(evidence).status is Status.INFO
    assert EQUAL(simulate(rollout_id=3)).status is Status.INFO


def test_moe_fusion_is_named_for_an_moe_model(simulate):
    columns = simulate().columns
    moved = [values + np.float32(0.01) for values in columns["log_probs"]]
    verdict = KL(
        simulate(columns={"ref_log_probs": moved}, arguments={"num_moe_experts": 8})
    )
    assert "--moe-permute-fusion" in verdict.causes[0].text


def test_a_log_with_means_only_can_fail_but_not_pass():
    def evidence(reference: float, rollout_id: int = 0) -> RolloutEvidence:
        metrics = {
            "rollout/log_probs": Mean(-8.0, 10),
            "rollout/ref_log_probs": Mean(reference, 10),
        }
        return RolloutEvidence(rollout_id=rollout_id, metrics=metrics)

    assert EQUAL(evidence(-8.0)).status is Status.INFO
    assert EQUAL(evidence(-8.1)).status is Status.FAIL
    assert EQUAL(evidence(-8.1, rollout_id=1)).status is Status.INFO
    assert EQUAL(evidence(np.nan)).status is Status.NON_FINITE


def test_kl_loss_stands_in_and_its_limit_has_two_sides():
    for kl, status in ((0.0, Status.PASS), (-1e-3, Status.FAIL), (1e-3, Status.FAIL)):
        metrics = {"train/kl_loss": Mean(kl, 1)}
        evidence = RolloutEvidence(rollout_id=0, metrics=metrics)
        assert KL(evidence).status is status


@pytest.mark.parametrize(
    "fault",
    [
        {"engine_temperature": 0.7},
        {"trainer_temperature": 0.7},
        {"engine_temperature": 0.95},
    ],
)
def test_a_temperature_on_one_side_is_named(simulate, fault):
    verdict = ENGINE(simulate(**fault))
    assert verdict.status is Status.FAIL
    assert "temperature" in verdict.causes[0].text
    assert verdict.summary.startswith("slope")


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_the_entropy_gap_finds_it_without_the_engine(simulate, temperature):
    evidence = simulate(engine_temperature=temperature, without=("rollout_log_probs",))
    verdict = MAGNITUDE(evidence)
    assert verdict.status is Status.FAIL
    assert np.sign(verdict.numbers["gap"]) == np.sign(temperature - 1)


@pytest.mark.parametrize("shift", [1, -1])
def test_a_shift_is_named(simulate, shift):
    verdict = ENGINE(simulate(shift=shift))
    assert verdict.status is Status.FAIL
    assert f"shifted by {shift:+d}" in verdict.summary


def test_a_cut_distribution_is_named(simulate):
    verdict = ENGINE(simulate(top_p=0.9))
    assert "top-p" in verdict.causes[0].text
    cut = simulate(top_p=0.9, arguments={"rollout_top_p": 0.9})
    assert MAGNITUDE(cut).status is Status.NOT_RUN


def test_stale_weights_are_not_called_a_temperature(simulate):
    verdict = ENGINE(simulate(engine_noise=0.3))
    assert verdict.status is Status.FAIL
    assert "other weights" in verdict.causes[0].text


def test_gpu_noise_in_bfloat16_passes(simulate):
    assert ENGINE(simulate(engine_noise=0.02, precision="bfloat16")).status is (
        Status.PASS
    )
    assert ENGINE(simulate(engine_noise=0.02)).status is Status.FAIL


def test_the_engines_own_log_probs_prove_nothing(simulate):
    columns = simulate().columns
    verdict = ENGINE(
        simulate(
            columns={"log_probs": columns["rollout_log_probs"]},
            arguments={"use_rollout_logprobs": True},
        )
    )
    assert verdict.status is Status.VACUOUS


def test_metrics_of_all_tokens_win_over_the_samples_at_hand(simulate):
    metrics = {"logprob_ref/unequal": Sum(4), "logprob_ref/tokens": Sum(9000)}
    verdict = EQUAL(simulate(metrics=metrics))
    assert verdict.status is Status.FAIL
    assert verdict.summary.startswith("unequal 4 of 9000")


def test_an_upstream_log_alone_is_enough_for_the_engine_rule():
    for value, status in ((0.01, Status.PASS), (0.07, Status.WARN), (0.5, Status.FAIL)):
        metrics = {"train/train_rollout_logprob_abs_diff": Gauge(value)}
        assert ENGINE(RolloutEvidence(rollout_id=0, metrics=metrics)).status is status
