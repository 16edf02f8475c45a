"""Runs whose responses come from a real SGLang server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from relax.backends.sglang.environment import sglang_python
from relax.control.run_folder import process_start
from relax.errors import EngineError
from relax.events.types import RunFinished, StageFinished, WeightsUpdated
from relax.records.open import StepRecord
from relax.records.schema import StageFile
from tests.process.runs import driver_pid, living, started, wait_until

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
