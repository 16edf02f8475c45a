"""How runs end: kill -9, SIGTERM, a hung rank, a second driver, a resumed folder."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from relax.control.run_folder import (
    DriverState,
    driver_state,
    process_start,
    read_run_info,
    write_run_info,
)
from relax.events.tail import EventTail
from relax.events.types import (
    Commanded,
    CommandKind,
    RunFinished,
    RunStarted,
    Stage,
    StageFinished,
    StageSlow,
    StageStarted,
    VerdictGiven,
)
from relax.records.open import StepRecord, list_rollouts
from relax.records.schema import StageFile
from relax.triage.verdict import Status, Verdict
from tests.process.runs import DEMO, TRAIN, driver_pid, living, started, wait_until

pytestmark = pytest.mark.engine
KILLS = int(os.environ.get("RELAX_TEST_KILLS", "1"))


def verdict_of(run, rule):
    """The newest verdict of a rule; None before there is one."""
    found = [Verdict.from_json(given.verdict) for given in run.of(VerdictGiven)]
    return next((v for v in reversed(found) if v.rule == rule), None)


def ray_sessions():
    return set(Path("/tmp/ray").glob("session_2*"))


@pytest.mark.parametrize("number", range(KILLS))
def test_after_kill_9_all_is_readable_and_nothing_is_left(tmp_path, number):
    before = ray_sessions()
    shared = set(Path("/dev/shm").iterdir())
    with started(tmp_path / "run", "--num-rollout", "500") as run:
        run.wait_for(StageFinished, count=8)
        pids = run.status().processes
        starts = {name: process_start(pid) for name, pid in pids.items()}
        control = Path(read_run_info(run.run_dir).socket)
        assert control.exists()
        moment = random.uniform(0.0, 2.5)
        wait_until(lambda: False, seconds=moment)
        os.kill(driver_pid(run), signal.SIGKILL)
        run.process.wait(5)
        assert wait_until(lambda: not living(pids, starts), seconds=15), (
            f"after {moment:.2f} s: {living(pids, starts)}"
        )
        assert wait_until(lambda: not control.exists(), seconds=15)
        assert wait_until(lambda: ray_sessions() <= before, seconds=15)
        assert set(Path("/dev/shm").iterdir()) <= shared
        assert driver_state(read_run_info(run.run_dir)) is DriverState.DEAD
        tail = EventTail(run.run_dir)
        seqs = [event.seq for event in tail.poll()]
        assert seqs == list(range(len(seqs)))
        for attempt, rollout_id in list_rollouts(run.run_dir):
            record = StepRecord(run.run_dir, attempt, rollout_id)
            for stage_file in StageFile:
                table = record.table(stage_file)
                assert table is None or table.num_rows == 64
            record.live_table()


def test_a_hung_rank_is_named_within_10_seconds_and_stop_says_what_it_killed(tmp_path):
    flags = ("--num-rollout", "5", "--inject-fault", "hung-rank")
    with started(tmp_path / "run", *flags) as run:

        def hung():
            return [
                s
                for s in run.of(StageStarted)
                if (s.rollout_id, s.stage) == (1, Stage.TRAIN)
            ]

        run.wait(hung)
        slow = run.wait_for(StageSlow, seconds=10)
        assert slow.stage is Stage.TRAIN
        assert "in sleep_for_ever" in slow.places["train-0"]
        verdict = run.wait(lambda: verdict_of(run, "stage_hangs"), seconds=10)
        assert verdict.status is Status.FAIL
        assert verdict.summary.startswith("train-0 stands in drills.py:")
        assert "in sleep_for_ever" in verdict.summary
        stop = run.command(CommandKind.STOP)
        assert run.status().phase == "stopping"
        assert run.end(seconds=40) == 0
        (finished,) = run.of(RunFinished)
        assert finished.why == "stopped"
        assert [name.split()[0] for name in finished.killed] == ["train-0"]
        fates = [c.phase for c in run.of(Commanded) if c.command_id == stop.id]
        assert fates == ["accepted", "done"]
        *_, done, last = [event.payload for event in run.poll()]
        assert (type(done), type(last)) == (Commanded, RunFinished)


def test_a_locked_folder_is_refused_and_sigterm_ends_cleanly(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    # What a crash of long ago leaves: a socket nobody listens on, a re-used pid.
    with started(run_dir, "--num-rollout", "500") as run:
        run.wait_for(StageFinished, count=1)
        info = read_run_info(run_dir)
        second = subprocess.run(
            [sys.executable, TRAIN, "--config", DEMO, "--run-dir", run_dir],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 6
        assert f"{socket.gethostname()} pid {info.pid}" in second.stderr
        assert len(second.stderr.strip().splitlines()) == 1
        os.kill(info.pid, signal.SIGTERM)
        assert run.end() == 0
        assert run.of(RunFinished)[0].why == "stopped"
        assert not Path(info.socket).exists()

    reused = json.loads((run_dir / "run.json").read_text())
    reused["pid"] = os.getpid()
    write_run_info(run_dir, type(info)(**reused))
    assert driver_state(read_run_info(run_dir)) is DriverState.DEAD
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(info.socket)
    stale.close()

    with started(run_dir, "--num-rollout", "1", "--start-rollout-id", "0") as run:
        assert run.end(seconds=120) == 0
        attempts = {event.attempt for event in run.poll()}
        assert attempts == {1, 2}
        assert run.of(RunStarted)[-1].run_id == info.run_id
        assert (2, 0) in list_rollouts(run_dir)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--rollout-batchsize", "4"), "--rollout-batch-size"),
        (("--kl-coef", "0.1"), "--kl-coef"),
        (("--custom-rm-path", "nowhere.reward"), "nowhere"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(tmp_path, flags, words):
    done = subprocess.run(
        [sys.executable, TRAIN, "--config", DEMO, "--run-dir", tmp_path / "r", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()
