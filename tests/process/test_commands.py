"""One real run, walked through its safe points by commands."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relax.arguments import parse_arguments
from relax.arguments.metric_names import declared_metrics
from relax.arguments.pause import OnMetric
from relax.control.protocol import Seen
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    Paused,
    RolloutFinished,
    RunFinished,
    RunStarted,
    Stage,
    StageFinished,
    TrainStep,
    WeightsUpdated,
)
from relax.records.open import list_rollouts, read_vocabulary
from relax.records.schema import StageFile
from tests.process.runs import DEMO, started

pytestmark = pytest.mark.engine

SECRET_FLAGS = (
    *("--rollout-stop", "https://me:planted-secret-three@host/x"),
    *("--tool-key", "https://host/tools?api_key=planted-secret-four&n=1"),
    # What a secret variable holds is a secret wherever it turns up.
    *("--metadata-key", "planted-secret-one"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of four rollouts that pauses before the first one.

    Its folder's path has more than 180 characters, and secrets lie all around it.
    """
    root = tmp_path_factory.mktemp("run")
    folder = root / ("long" * 40) / "run"
    assert len(str(folder)) > 180
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", "planted-secret-one")
        patch.setenv("HTTPS_PROXY", "http://me:planted-secret-two@proxy:1/")
        flags = ("--num-rollout", "4", "--pause-at", "start", *SECRET_FLAGS)
        with started(folder, *flags) as run:
            run.wait_for(Paused)
            yield run


def pauses(run):
    return len(run.of(Paused))


def test_1_the_first_weight_update_comes_before_rollout_0_and_arrives(run):
    paused = run.wait_for(Paused)
    assert (paused.rollout_id, paused.before) == (0, Stage.GENERATE)
    assert (paused.after, paused.why) == (Stage.UPDATE_WEIGHTS, "start")
    update = run.of(WeightsUpdated)[0]
    assert (update.rollout_id, update.version) == (-1, 0)
    assert update.fingerprint == update.engine_fingerprint != ""
    status = run.status()
    assert (status.phase, status.rollout_id, status.stage) == ("paused", 0, "generate")
    assert status.actions["continue"].possible
    assert status.actions["pause"].reason == "the run is paused already"
    assert {"driver", "train-0", "engine-0"} <= status.processes.keys()


def test_2_a_step_runs_one_stage_and_a_stale_one_is_refused(run):
    stale = Seen(rollout_id=7, stage="train")
    answer = run.command(CommandKind.STEP_STAGE, seen=stale)
    assert not answer.accepted
    assert "before generate of rollout 0 now" in answer.reason
    seen = Seen(attempt=1, mode="full", rollout_id=0, stage="generate")
    answer = run.command(CommandKind.STEP_STAGE, seen=seen)
    assert answer.accepted
    assert answer.waits_for == "after generate of rollout 0"
    paused = run.wait_for(Paused, count=2)
    assert (paused.after, paused.before) == (Stage.GENERATE, Stage.REWARD)
    table = run.record(0).live_table()
    assert table.num_rows == 64
    done = [c for c in run.of(Commanded) if c.phase is CommandPhase.DONE]
    assert done[-1].command_id == answer.id


def test_3_a_rollout_step_stops_before_the_next_rollout(run):
    run.command(CommandKind.STEP_ROLLOUT)
    paused = run.wait_for(Paused, count=3)
    assert (paused.rollout_id, paused.before) == (1, Stage.GENERATE)
    finished = run.of(StageFinished)
    stages = [s.stage for s in finished if s.rollout_id == 0]
    assert stages == list(Stage)
    assert list_rollouts(run.run_dir) == [(1, 0)]


def test_4_first_rollout_unequal_0_and_kl_0_from_two_counted_passes(run):
    by_stage = {s.stage: s for s in run.of(StageFinished) if s.rollout_id == 0}
    passes = by_stage[Stage.LOG_PROBS].passes
    assert passes["log_probs"] == passes["entropy"]
    assert passes["log_probs"] != by_stage[Stage.REF_LOG_PROBS].passes["ref_log_probs"]
    metrics = by_stage[Stage.LOG_PROBS].metrics
    assert metrics["logprob_ref/unequal"].value == 0
    assert metrics["logprob_ref/tokens"].value > 1000
    assert metrics["rollout/kl"].value == 0.0
    assert metrics["rollout/kl_k3"].value == 0.0
    step = run.of(TrainStep)[0]
    assert math.isfinite(step.metrics["train/grad_norm"].value)
    assert step.metrics["train/grad_norm"].value > 0
    assert step.vacuous == ()
    columns = run.record(0).table(StageFile.LOGPROBS)
    log_probs = np.concatenate(columns["log_probs"].to_pylist())
    ref_log_probs = np.concatenate(columns["ref_log_probs"].to_pylist())
    assert log_probs.tobytes() == ref_log_probs.tobytes()
    assert log_probs.size == metrics["logprob_ref/tokens"].value


def test_5_columns_align_and_text_comes_from_the_vocabulary(run):
    record = run.record(0)
    samples = record.table(StageFile.SAMPLES)
    logprobs = record.table(StageFile.LOGPROBS)
    train = record.table(StageFile.TRAIN)
    assert samples["sample_index"].to_pylist() == logprobs["sample_index"].to_pylist()
    assert sorted(train["sample_index"].to_pylist()) == list(range(64))
    metadata = record.metadata(StageFile.SAMPLES)
    vocabulary = read_vocabulary(run.run_dir / metadata.vocab)
    rows = zip(samples.to_pylist(), logprobs["log_probs"].to_pylist(), strict=True)
    for row, log_probs in rows:
        assert len(row["tokens"]) == row["total_length"]
        assert len(log_probs) == row["response_length"] == len(row["loss_mask"])
        tail = row["tokens"][-row["response_length"] :]
        assert "".join(vocabulary.text(tail)) == row["response"]
        gap = np.abs(np.array(log_probs) - np.array(row["rollout_log_probs"]))
        assert gap.max() < 1e-4


def test_6_stop_conditions_and_a_pause_hold_the_run(run):
    bad = run.command(CommandKind.SET_STOPS, conditions=("grad_nrom >> 3",))
    assert not bad.accepted
    assert "grad_nrom" in bad.reason
    good = run.command(CommandKind.SET_STOPS, conditions=("grad_norm > 0",))
    assert good.accepted
    run.go_on()
    paused = run.wait_for(Paused, count=4)
    assert (paused.why, paused.after) == ("grad_norm > 0", Stage.TRAIN)
    run.command(CommandKind.SET_STOPS, conditions=())
    run.go_on()
    run.command(CommandKind.PAUSE)
    assert run.wait_for(Paused, count=5).why == "command"


def test_7_from_the_second_rollout_on_policy_and_reference_differ(run):
    stops = ("2:train",)
    run.command(CommandKind.SET_STOPS, conditions=stops)
    run.go_on()
    run.wait(lambda: any(p.why == "2:train" for p in run.of(Paused)))
    last = [s for s in run.of(StageFinished) if s.stage is Stage.LOG_PROBS][-1]
    assert last.rollout_id == 2
    assert last.metrics["logprob_ref/unequal"].value > 0
    assert last.metrics["rollout/kl_k3"].value > 0


def test_7b_the_declared_metrics_are_those_that_were_measured(run):
    declared = declared_metrics(parse_arguments(["--config", str(DEMO)]))
    measured = {
        name
        for kind in (StageFinished, TrainStep, RolloutFinished)
        for payload in run.of(kind)
        for name in payload.metrics
    }
    conditions = [OnMetric(metric=n, comparison=">", bound=0) for n in measured]
    declared.check(conditions)
    plain = {name for name in declared.names if "*" not in name}
    # This run is over before its first evaluation.
    unmeasured = plain - measured - {"perf/eval_time"}
    missing = {name.rpartition("/")[0] for name in unmeasured}
    # Only what this model has not got, or what is measured when something is wrong.
    assert missing <= {"train/grad_norm", "logprob_repeat", "eval"}


def test_8_stacks_name_every_process(run):
    stacks = run.ask("stacks")
    assert {"train-0", "engine-0", "driver"} <= stacks.stacks.keys()
    assert "most recent call first" in stacks.stacks["train-0"]


def test_9_a_stop_ends_the_run_cleanly_and_no_secret_was_written(run):
    run.command(CommandKind.STOP)
    assert run.end() == 0
    finished = run.of(RunFinished)[0]
    assert (finished.why, finished.killed) == ("stopped", ())
    seqs = [event.seq for event in run.poll()]
    assert seqs == list(range(len(seqs)))
    arguments = run.of(RunStarted)[-1].arguments
    assert arguments["lr"]["value"] == 2e-4
    assert arguments["rollout_stop"]["value"] == ["https://<redacted>@host/x"]
    assert arguments["metadata_key"]["value"] == "<redacted>"
    read = 0
    for path in run.run_dir.rglob("*"):
        if path.is_file():
            read += 1
            assert b"planted-secret" not in path.read_bytes(), path
    assert read > 20
