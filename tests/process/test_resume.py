"""A run that is killed goes on bit for bit from its newest checkpoint.

Three runs of six short rollouts: one undisturbed, one killed at a random rollout after
its first checkpoint, and the same folder started again with the same flags.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

from relax.backends.checkpoint_meta import META, checkpoint_path, checkpoints_in
from relax.events.tail import EventTail
from relax.events.types import (
    RolloutFinished,
    RunFinished,
    RunStarted,
    StageFinished,
    TrainStep,
    WeightsUpdated,
)
from relax.records.open import StepRecord, list_rollouts
from relax.records.schema import StageFile
from tests.process.runs import DEMO, TRAIN, driver_pid, started

pytestmark = pytest.mark.engine

ROLLOUTS = 6
SHORT = (
    *("--num-rollout", str(ROLLOUTS), "--rollout-batch-size", "4"),
    *("--n-samples-per-prompt", "4", "--global-batch-size", "16"),
    *("--rollout-max-response-len", "16", "--lr", "1e-3"),
)


def flags(save):
    return (*SHORT, "--save", str(save), "--save-interval", "2")


def measured(run, *, attempt=None):
    """What a run measured, by rollout; times and memory left out."""
    found = {}
    for event in run.poll():
        if attempt is not None and event.attempt != attempt:
            continue
        payload = event.payload
        if isinstance(payload, TrainStep):
            found["step", payload.step] = dict(payload.metrics)
        elif isinstance(payload, WeightsUpdated):
            found["weights", payload.version] = payload.fingerprint
        elif isinstance(payload, StageFinished) and payload.passes:
            found["passes", payload.rollout_id, payload.stage] = dict(payload.passes)
        elif isinstance(payload, RolloutFinished):
            found["rollout", payload.rollout_id] = {
                name: metric
                for name, metric in payload.metrics.items()
                if not name.startswith("perf/")
            }
    return found


def columns(run_dir, attempt, rollout_id):
    """All columns of a record, as they lie on the disk."""
    record = StepRecord(run_dir, attempt, rollout_id)
    return {stage: record.table(stage).to_pydict() for stage in StageFile}


def bytes_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    with started(root / "run", *flags(root / "saved")) as run:
        assert run.end(seconds=120) == 0
        yield run


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The run after both attempts, and where it was killed."""
    root = tmp_path_factory.mktemp("killed")
    at = random.randrange(2, ROLLOUTS)
    with started(root / "run", *flags(root / "saved")) as first:
        first.wait(lambda: len(first.of(RolloutFinished)) >= at)
        os.kill(driver_pid(first), signal.SIGKILL)
        first.process.wait(10)
        tail = EventTail(first.run_dir)
        seen = tail.poll()
    newest = max(checkpoints_in(root / "saved"))
    # What a copy that was interrupted, and a writer that was killed, leave behind.
    half = checkpoint_path(root / "saved", rollout_id=newest + 2)
    shutil.copytree(checkpoint_path(root / "saved", rollout_id=newest), half)
    (half / "tp00-pp00" / "model.safetensors").write_bytes(b"half")
    (root / "saved" / f".{half.name}.tmp").mkdir()
    before = bytes_of(root / "run" / "steps")
    with started(root / "run", *flags(root / "saved")) as second:
        assert second.end(seconds=120) == 0
        yield {
            "run": second,
            "newest": newest,
            "records_before": before,
            "attached": [*seen, *tail.poll()],
        }


def test_the_same_seed_twice_is_the_same_run_bit_for_bit(undisturbed, killed):
    first = measured(killed["run"], attempt=1)
    expected = measured(undisturbed)
    assert len(first) > 6
    assert first == {key: expected[key] for key in first}
    for attempt, rollout_id in list_rollouts(killed["run"].run_dir):
        record = StepRecord(killed["run"].run_dir, attempt, rollout_id)
        if attempt == 1 and record.table(StageFile.TRAIN) is not None:
            again = columns(undisturbed.run_dir, 1, rollout_id)
            assert columns(killed["run"].run_dir, 1, rollout_id) == again


def test_a_resumed_run_goes_on_bit_for_bit(undisturbed, killed):
    run, newest = killed["run"], killed["newest"]
    second = measured(run, attempt=2)
    expected = measured(undisturbed)
    steps = [key[1] for key in second if key[0] == "step"]
    assert steps == list(range(newest + 1, ROLLOUTS))
    assert second == {key: expected[key] for key in second}
    for rollout_id in steps:
        ours = columns(run.run_dir, 2, rollout_id)
        assert ours == columns(undisturbed.run_dir, 1, rollout_id)
    told = [event.payload for event in run.poll() if event.attempt == 2]
    begun = [p for p in told if isinstance(p, RunStarted)][-1]
    assert begun.start_rollout_id == newest + 1
    assert begun.resumed_from.endswith(f"rollout_{newest:06d}")


def test_checkpoints_at_the_end_are_the_same_bits(undisturbed, killed):
    ours = killed["run"].run_dir.parent / "saved"
    theirs = undisturbed.run_dir.parent / "saved"
    last = checkpoint_path(ours, rollout_id=ROLLOUTS - 1)
    expected = checkpoint_path(theirs, rollout_id=ROLLOUTS - 1)
    for path in expected.rglob("*.safetensors"):
        relative = path.relative_to(expected)
        assert (last / relative).read_bytes() == path.read_bytes(), relative
    assert (last / META).exists()


def test_records_of_the_first_attempt_are_untouched(killed):
    steps = killed["run"].run_dir / "steps"
    now = bytes_of(steps)
    before = killed["records_before"]
    assert before
    assert {path: now[path] for path in before} == before
    new = {path.relative_to(steps).parts[0] for path in now.keys() - before.keys()}
    assert new == {"a02"}


def test_a_reader_attached_across_sees_each_event_once(killed):
    seqs = [event.seq for event in killed["attached"]]
    assert seqs == list(range(len(seqs)))
    assert {event.attempt for event in killed["attached"]} == {1, 2}
    assert isinstance(killed["attached"][-1].payload, RunFinished)


def test_without_a_checkpoint_it_says_that_it_starts_again(tmp_path):
    short = (*SHORT, "--num-rollout", "1", "--debug-rollout-only")
    for attempt in (1, 2):
        with started(tmp_path / "run", *short) as run:
            assert run.end(seconds=120) == 0
            assert run.of(RunStarted)[-1].start_rollout_id == 0
            assert {event.attempt for event in run.poll()} == set(range(1, attempt + 1))
    said = (run.run_dir / "driver.out").read_text()
    assert "Attempt 2 starts again at rollout 0: there is no complete checkpo" in said


def test_checkpoints_in_the_way_are_refused_before_anything_starts(undisturbed):
    saved = undisturbed.run_dir.parent / "saved"
    other = undisturbed.run_dir.parent / "other"
    done = subprocess.run(
        [sys.executable, TRAIN, "--config", DEMO, "--run-dir", other, *flags(saved)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "holds checkpoints of rollout 1 and later" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not other.exists()
