"""The socket opens before the workers are up: a start can be seen and stopped."""

from __future__ import annotations

import os
import signal

import pytest

from relax.control.run_folder import process_start
from relax.errors import ControlError, RecordError
from relax.events.types import (
    Commanded,
    CommandKind,
    RunFinished,
    StageStarted,
    StartupProgress,
)
from tests.process.runs import driver_pid, living, started, wait_until

pytestmark = pytest.mark.engine


def reached(run):
    """The run's status as soon as its socket answers; None before."""
    try:
        return run.status()
    except (ControlError, RecordError):
        return None


def test_a_start_can_be_looked_at_and_stopped(tmp_path):
    with started(tmp_path / "run", "--num-rollout", "500") as run:
        status = run.wait(lambda: reached(run), seconds=30)
        assert status.phase == "starting"
        assert status.processes.keys() == {"driver"}
        assert not status.actions["continue"].possible
        assert status.actions["stop"].possible
        run.wait(lambda: run.status().startup.get("Ray"), seconds=60)
        status = run.wait(
            lambda: (now := run.status()).startup.get("trainer", 1) is None and now,
            seconds=60,
        )
        assert status.startup["Ray"] > 0
        pids = status.processes
        starts = {name: process_start(pid) for name, pid in pids.items()}
        stop = run.command(CommandKind.STOP)
        assert stop.accepted
        assert run.end(seconds=60) == 0
        assert [c.phase for c in run.of(Commanded)] == ["accepted", "done"]
        (finished,) = run.of(RunFinished)
        assert (finished.why, finished.rollouts) == ("stopped", 0)
        assert run.of(StageStarted) == []
        assert wait_until(lambda: not living(pids, starts), seconds=15)


def test_a_pause_given_while_starting_holds_before_the_first_stage_and_sigterm_ends(
    tmp_path,
):
    with started(tmp_path / "run", "--num-rollout", "500") as run:
        run.wait(lambda: reached(run), seconds=30)
        pause = run.command(CommandKind.PAUSE)
        assert pause.accepted
        status = run.wait(lambda: (s := run.status()).phase == "paused" and s)
        assert (status.rollout_id, status.stage) == (-1, "update_weights")
        assert run.of(StageStarted) == []
        up = {p.what for p in run.of(StartupProgress) if p.done}
        assert up == status.startup.keys()
        os.kill(driver_pid(run), signal.SIGTERM)
        assert run.end(seconds=60) == 0
        assert run.of(RunFinished)[0].why == "stopped"
