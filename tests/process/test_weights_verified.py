"""Weights compared on all sides: on command, spoilt by a drill, after a restart."""

from __future__ import annotations

import pytest

from relax.control.orders import RestartOrder, VerifyOrder
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    Paused,
    RunFailed,
    VerdictGiven,
    WeightsUpdated,
)
from tests.process.runs import started

pytestmark = pytest.mark.engine

SQUARE = "model.layers.0.self_attn.q_proj.weight"


def done(run, kind, order):
    """What the run says that it did, once it is done."""
    answer = run.command(kind, order=order)
    assert answer.accepted, answer.reason
    told = run.wait(
        lambda: [
            c
            for c in run.of(Commanded)
            if c.command_id == answer.id and c.phase is not CommandPhase.ACCEPTED
        ]
    )
    assert told[-1].phase is CommandPhase.DONE
    return told[-1].reason


def verified(run):
    return done(run, CommandKind.VERIFY, VerifyOrder())


def verdicts(run):
    given = [v.verdict for v in run.of(VerdictGiven)]
    return [v for v in given if v["rule"] == "weights_verified"]


def test_a_tensor_that_arrives_transposed_is_named_at_once_and_again_on_command(
    tmp_path,
):
    flags = ("--num-rollout", "1", "--inject-fault", "tensor-transposed")
    with started(tmp_path / "run", *flags, "--pause-at", "start") as run:
        run.wait_for(Paused)
        (verdict,) = verdicts(run)
        assert (verdict["status"], verdict["where"]["rollout_id"]) == ("FAIL", -1)
        assert verdict["summary"] == (
            f"engine-0 ≠ trainer: 1 of 46 tensors, first {SQUARE}"
        )
        assert verified(run) == f"FAIL: {verdict['summary']}"
        assert run.command(CommandKind.STOP).accepted
        assert run.end() == 0


def test_an_engine_that_is_started_again_has_the_trainers_weights(tmp_path):
    flags = ("--num-rollout", "2", "--pause-at", "1:generate")
    with started(tmp_path / "run", *flags) as run:
        run.wait_for(Paused)
        told = done(run, CommandKind.RESTART_ENGINE, RestartOrder())
        assert told == "engine-0 started again, with weights 1"
        updates = run.of(WeightsUpdated)
        assert [(u.rollout_id, u.version) for u in updates] == [(-1, 0), (0, 1), (0, 1)]
        assert updates[-1].engine_fingerprint == updates[-2].fingerprint
        assert verified(run) == (
            "PASS: engine-0 = trainer: 46 tensors bitwise; 1 steps from the checkpoint"
        )
        run.go_on()
        assert run.end() == 0


def test_a_tensor_that_is_not_sent_ends_the_run_by_name(tmp_path):
    flags = ("--num-rollout", "1", "--inject-fault", "tensor-not-sent")
    with started(tmp_path / "run", *flags) as run:
        assert run.end() != 0
        (failed,) = run.of(RunFailed)
        assert f"without 1 of 46 tensors: {SQUARE}" in failed.what


def test_rollout_only_compares_the_engine_with_the_checkpoint(tmp_path):
    flags = ("--num-rollout", "1", "--debug-rollout-only", "--pause-at", "0:reward")
    with started(tmp_path / "run", *flags) as run:
        run.wait_for(Paused)
        assert verified(run) == "PASS: engine-0 = checkpoint: 46 tensors bitwise"
        assert run.command(CommandKind.STOP).accepted
        assert run.end() == 0
