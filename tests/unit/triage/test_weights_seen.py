"""Weights on disk, in the trainer and in the engines: who differs, and in what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relax.triage.verdict import Status
from relax.triage.weights_seen import WeightsSeen, judge_weights

HELD = {"model.embed.weight": "aa", "model.norm.weight": "bb", "lm_head.weight": "cc"}
SEEN = WeightsSeen(
    rollout_id=4, version=0, engines={"engine-0": HELD}, trainer=HELD, disk=HELD
)


def other(name, digest="ff"):
    return {**HELD, name: digest}


def test_equal_on_all_sides():
    verdict = judge_weights(SEEN)
    assert verdict.status is Status.PASS
    assert verdict.summary == (
        "engine-0 = trainer: 3 tensors bitwise; trainer = checkpoint: 3 tensors bitwise"
    )
    assert verdict.next_command is None


def test_the_first_tensor_that_differs_is_named_in_the_models_order():
    held = {**HELD, "lm_head.weight": "ff", "model.norm.weight": "ff"}
    verdict = judge_weights(replace(SEEN, engines={"engine-0": HELD, "engine-1": held}))
    assert verdict.status is Status.FAIL
    assert verdict.summary == (
        "engine-1 ≠ trainer: 2 of 3 tensors, first model.norm.weight"
    )
    texts = [evidence.text for evidence in verdict.evidence]
    assert "differs: lm_head.weight" in texts
    assert "engine-0 = trainer: 3 tensors bitwise" in texts


def test_a_tensor_that_one_side_lacks_differs():
    held = {name: HELD[name] for name in HELD if name != "lm_head.weight"}
    verdict = judge_weights(replace(SEEN, engines={"engine-0": held}))
    assert verdict.status is Status.FAIL
    assert verdict.summary.endswith("first lm_head.weight (on one side only)")


@pytest.mark.parametrize(("version", "status"), [(0, Status.FAIL), (3, Status.PASS)])
def test_the_trainer_may_leave_the_checkpoint_by_training_only(version, status):
    disk = other("model.norm.weight")
    verdict = judge_weights(replace(SEEN, version=version, disk=disk))
    assert verdict.status is status
    assert any(
        e.text == "trainer ≠ checkpoint: 1 of 3 tensors, first model.norm.weight"
        for e in verdict.evidence
    )


def test_without_a_trainer_the_engine_should_hold_the_checkpoint():
    seen = replace(SEEN, trainer=None)
    assert judge_weights(seen).status is Status.PASS
    verdict = judge_weights(replace(seen, disk=other("model.embed.weight")))
    assert verdict.status is Status.FAIL
    assert "engine-0 ≠ checkpoint: 1 of 3" in verdict.summary


def test_nothing_to_compare_with_is_no_pass():
    seen = replace(SEEN, trainer=None, disk=None)
    assert judge_weights(seen).status is Status.NOT_RUN
