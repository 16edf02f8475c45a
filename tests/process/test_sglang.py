"""Runs whose responses come from a real SGLang server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from relax.backends.sglang.environment import sglang_python
from relax.backends.sglang.server import session_members
from relax.control.orders import RestartOrder
from relax.control.run_folder import process_start
from relax.controller.reaper import descendants
from relax.errors import EngineError
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    EngineLost,
    Paused,
    RunFailed,
    RunFinished,
    Stage,
    StageFinished,
    StageStarted,
    VerdictGiven,
    WeightsUpdated,
)
from relax.records.open import StepRecord
from relax.records.schema import StageFile
from tests.process.runs import Run, driver_pid, living, started, wait_until

try:
    sglang_python(None)
    WHY = ""
except EngineError as error:
    WHY = str(error)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(bool(WHY), reason=f"no SGLang: {WHY}"),
]
FLAGS = ("--rollout-backend", "sglang")


def test_ten_rollouts_agree_with_the_trainer(tmp_path):
    with started(tmp_path / "run", *FLAGS, "--num-rollout", "10", "--no-control") as r:
        assert r.end(seconds=240) == 0
        assert r.of(RunFinished)
        updates = r.of(WeightsUpdated)
        assert len(updates) == 11
        assert all(u.fingerprint == u.engine_fingerprint for u in updates)
        assert len({u.fingerprint for u in updates}) == 11
        for rollout_id in range(10):
            assert 0 < largest_difference(r.record(rollout_id)) <= 1e-5


def largest_difference(record: StepRecord) -> float:
    """Of the engine's log-probs from the trainer's, over max(1, |log-prob|)."""
    ours = tokens_of(record, StageFile.LOGPROBS, "log_probs")
    theirs = tokens_of(record, StageFile.SAMPLES, "rollout_log_probs")
    assert np.isfinite(ours).all()
    return float(np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(ours))))


def tokens_of(record: StepRecord, stage_file: StageFile, column: str) -> np.ndarray:
    rows = record.table(stage_file, columns=[column])[column].to_pylist()
    return np.concatenate([np.asarray(row) for row in rows if row])


def test_kill_9_of_the_driver_ends_the_server(tmp_path):
    shared = set(Path("/dev/shm").iterdir())
    with started(tmp_path / "run", *FLAGS, "--num-rollout", "500") as run:
        run.wait_for(StageFinished, count=4)
        pids = run.status().processes
        assert "sglang-0" in pids
        starts = {name: process_start(pid) for name, pid in pids.items()}
        os.kill(driver_pid(run), signal.SIGKILL)
        run.process.wait(5)
        assert wait_until(lambda: not living(pids, starts), seconds=15)
        assert wait_until(lambda: set(Path("/dev/shm").iterdir()) <= shared, seconds=15)


LONG = 600.0
"""Seconds; a server's start takes 15 s where nothing else runs."""


def test_a_lost_engine_is_named_and_started_again_with_the_trainers_weights(tmp_path):
    flags = (*FLAGS, "--num-rollout", "2", "--pause-at", "0:update_weights")
    with started(tmp_path / "run", *flags) as run:
        wait_for_stage(run, 0, Stage.GENERATE)
        session = kill_part(run, "scheduler", signal.SIGKILL)
        assert lost_in(run, 0, Stage.GENERATE).total == 64
        assert wait_until(lambda: not session_members(session), seconds=15)
        go_on_after_restart(run)

        run.wait(lambda: run.of(Paused)[-1].before is Stage.UPDATE_WEIGHTS)
        # Stopped first, so that the update is on its way when the scheduler dies.
        kill_part(run, "scheduler", signal.SIGSTOP)
        run.go_on()
        wait_for_stage(run, 0, Stage.UPDATE_WEIGHTS)
        kill_part(run, "scheduler", signal.SIGKILL)
        assert lost_in(run, 0, Stage.UPDATE_WEIGHTS).total == 0
        go_on_after_restart(run)

        wait_for_stage(run, 1, Stage.GENERATE)
        session = kill_part(run, "detokenizer", signal.SIGSTOP)
        assert "its detokenizer" in lost_in(run, 1, Stage.GENERATE).what
        assert wait_until(lambda: not session_members(session), seconds=15)
        assert_named_by_its_heartbeat(run)
        assert run.command(CommandKind.STOP).accepted
        assert run.end() == 0

        updates = run.of(WeightsUpdated)
        assert all(u.fingerprint == u.engine_fingerprint for u in updates)
        # At the start and after the rollout, and before each again after a loss.
        assert [u.version for u in updates] == [0, 0, 1, 1]
        samples = run.record(0).table(StageFile.SAMPLES)
        assert samples["sample_index"].to_pylist() == list(range(64))


def assert_named_by_its_heartbeat(run: Run) -> None:
    verdict = [v.verdict for v in run.of(VerdictGiven)][-1]
    assert verdict["rule"] == "engine_lost"
    assert "detokenizer" in verdict["summary"]
    assert any("last_heartbeat" in one["text"] for one in verdict["evidence"])
    assert verdict["next_command"].endswith("restart-engine")


def test_an_engine_that_is_killed_while_it_starts_ends_the_run(tmp_path):
    with started(tmp_path / "run", *FLAGS, "--num-rollout", "1") as run:
        session = run.wait(lambda: server_of(run))
        kill_in(session, "scheduler", signal.SIGKILL)
        assert run.end(seconds=LONG) == 4
        (failed,) = run.of(RunFailed)
        assert failed.code == "engine-died"
        assert wait_until(lambda: not session_members(session), seconds=15)


def wait_for_stage(run: Run, rollout_id: int, stage: Stage) -> None:
    run.wait(
        lambda: any(
            (s.rollout_id, s.stage) == (rollout_id, stage) for s in run.of(StageStarted)
        ),
        seconds=LONG,
    )


def lost_in(run: Run, rollout_id: int, stage: Stage) -> EngineLost:
    """The loss, once it is told and the run waits before that stage."""

    def told() -> list[EngineLost]:
        lost = run.of(EngineLost)
        return [e for e in lost if (e.rollout_id, e.stage) == (rollout_id, stage)]

    (lost,) = run.wait(told)
    run.wait(lambda: lost.what in run.of(Paused)[-1].why if run.of(Paused) else False)
    return lost


def go_on_after_restart(run: Run) -> None:
    answer = run.command(CommandKind.RESTART_ENGINE, order=RestartOrder())
    assert answer.accepted, answer.reason

    def ended() -> Commanded | None:
        mine = [c for c in run.of(Commanded) if c.command_id == answer.id]
        return next((c for c in mine if c.phase is not CommandPhase.ACCEPTED), None)

    done = run.wait(ended, seconds=LONG)
    version = run.of(WeightsUpdated)[-1].version
    assert done.phase is CommandPhase.DONE
    assert done.reason == f"engine-0 started again, with weights {version}"
    assert run.go_on().accepted


def kill_part(run: Run, name: str, number: signal.Signals) -> int:
    """Sends a signal to a part of the server; returns the server's session."""
    session = run.status().processes["sglang-0"]
    kill_in(session, name, number)
    return session


def kill_in(session: int, name: str, number: signal.Signals) -> None:
    """Sends a signal to a part of a server, once that is there."""

    def part() -> int:
        return next((p for p in session_members(session) if name in title(p)), 0)

    assert wait_until(part, seconds=LONG)
    os.kill(part(), number)


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1")
    except OSError:
        return ""


def server_of(run: Run) -> int:
    """Pid of the server while it starts; 0 before."""
    below = (
        descendants({driver_pid(run)}) if (run.run_dir / "run.json").exists() else []
    )
    servers = (p for p in below if "sglang.launch_server" in title(p))
    return next((p for p in servers if os.getsid(p) == p), 0)
