"""The guide's four workflows, by the command lines that it gives."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from relax.control.run_folder import read_run_info
from relax.dump.catalogue import find_dumps, verify
from relax.events.tail import EventTail
from relax.events.types import (
    DumpWritten,
    Mode,
    Paused,
    RunFinished,
    RunStarted,
    Stage,
    StageFinished,
    StartupProgress,
    TrainStep,
    WeightsUpdated,
)
from tests.process.runs import DEMO, ROOT, started

pytestmark = pytest.mark.engine

ROLLOUT_ONLY = """python3 relax/entrypoints/train.py \\
    --debug-rollout-only \\
    --rollout-num-gpus 2 \\
    --rollout-num-gpus-per-engine 2 \\
    --save-debug-rollout-data {folder}/data_{{rollout_id}}.pt \\
"""
TRAIN_ONLY = """python3 relax/entrypoints/train.py \\
    --load-debug-rollout-data {folder}/data_{{rollout_id}}.pt \\
"""
DETAILS = """python3 relax/entrypoints/train.py \\
    --dump-details {folder} \\
"""
FORGE = """python3 relax/entrypoints/train.py \\
    --rollout-function-path relax.engine.rollout.forge_load.generate_rollout \\
    --load-forge-rollout-data {folder}/data_{{rollout_id}}.pt \\
"""
"""As the guide has them, with 8 replaced by 2; the model's arguments follow."""


def run(command: str, run_dir: Path, *, folder: Path, rollouts: int) -> list:
    """Runs a command line of the guide as it stands; gives the run's events."""
    words = shlex.split(command.format(folder=folder).replace("\\\n", " "))
    assert words[0] == "python3"
    rest = ["--config", str(DEMO), "--run-dir", str(run_dir), "--no-control"]
    done = subprocess.run(
        [sys.executable, *words[1:], *rest, "--num-rollout", str(rollouts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [event.payload for event in EventTail(run_dir).poll()]


def of(events: list, kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def stages(events: list) -> list[Stage]:
    return [event.stage for event in of(events, StageFinished)]


def started_parts(events: list) -> set[str]:
    return {event.what for event in of(events, StartupProgress)}


def steps(events: list) -> list[dict]:
    """Every number of every train step, as Σ and count."""
    return [dict(event.metrics) for event in of(events, TrainStep)]


@pytest.fixture(scope="module")
def details(tmp_path_factory):
    """Workflow 3: a full run that dumps everything; its events and its folder."""
    place = tmp_path_factory.mktemp("details")
    events = run(DETAILS, place / "run", folder=place / "dump", rollouts=2)
    return events, place / "dump"


def test_dump_details_writes_rollouts_ranks_and_tokenizer(details):
    events, folder = details
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.pt")}
    assert names == {
        *(f"rollout_data/{n}.pt" for n in range(2)),
        *(f"train_data/{n}_0.pt" for n in range(2)),
    }
    assert (folder / "tokenizer" / "tokenizer.json").is_file()
    entries = find_dumps(folder)
    assert sorted(entry.kind for entry in entries) == ["rollout"] * 2 + ["train"] * 2
    assert [verify(entry) for entry in entries] == [[]] * 4
    kinds = [event.kind for event in of(events, DumpWritten)]
    assert sorted(set(kinds)) == ["manifest", "rollout", "train"]


def test_what_torch_reads_is_what_the_run_trained_on(details):
    import torch

    _, folder = details
    rollout = torch.load(folder / "rollout_data" / "1.pt", weights_only=True)
    train = torch.load(folder / "train_data" / "1_0.pt", weights_only=True)
    assert rollout["rollout_id"] == train["rollout_id"] == 1
    columns = train["rollout_data"]
    assert len(rollout["samples"]) == len(columns["tokens"]) == 64
    for place, sample in enumerate(rollout["samples"]):
        assert columns["tokens"][place].tolist() == sample["tokens"]
        assert columns["raw_reward"][place] == sample["reward"]
        length = sample["response_length"]
        for name in ("log_probs", "ref_log_probs", "advantages", "rollout_log_probs"):
            assert columns[name][place].shape == (length,)
        assert len(sample["decoded_tokens"]) == len(sample["tokens"])


def test_train_only_repeats_the_run_bit_for_bit(details, tmp_path):
    whole, folder = details
    command = TRAIN_ONLY.replace("data_{{", "{{")
    events = run(command, tmp_path, folder=folder / "rollout_data", rollouts=2)
    assert of(events, RunStarted)[0].mode is Mode.TRAIN_ONLY
    assert started_parts(events) == {"Ray", "trainer"}
    assert not of(events, WeightsUpdated)
    assert Stage.UPDATE_WEIGHTS not in stages(events)
    assert steps(events) == steps(whole)


def test_rollout_only_and_then_forge(tmp_path):
    data = tmp_path / "data"
    alone = run(ROLLOUT_ONLY, tmp_path / "alone", folder=data, rollouts=1)
    assert of(alone, RunStarted)[0].mode is Mode.ROLLOUT_ONLY
    assert "trainer" not in started_parts(alone)
    assert stages(alone) == [Stage.GENERATE, Stage.REWARD]
    assert not of(alone, WeightsUpdated)

    forged = run(FORGE, tmp_path / "forged", folder=data, rollouts=2)
    assert of(forged, RunStarted)[0].mode is Mode.FORGE
    assert "rollout engine" in started_parts(forged)
    assert len(of(forged, WeightsUpdated)) == 3
    assert len(steps(forged)) == 2
    log = (tmp_path / "forged" / "logs" / "engine.log").read_text()
    assert f"{data}/data_1.pt missing, falling back to {data}/data_0.pt" in log


def test_a_missing_dump_waits_at_a_safe_point(details, tmp_path):
    _, folder = details
    data = tmp_path / "data"
    data.mkdir()
    (data / "0.pt").write_bytes((folder / "rollout_data" / "0.pt").read_bytes())
    flags = ("--load-debug-rollout-data", f"{data}/{{rollout_id}}.pt")
    with started(tmp_path / "run", *flags, "--num-rollout", "2") as waiting:
        paused = waiting.wait_for(Paused)
        assert f"{data}/1.pt" in paused.why
        assert (paused.rollout_id, paused.before) == (1, Stage.GENERATE)
        (data / "1.pt").write_bytes((folder / "rollout_data" / "1.pt").read_bytes())
        assert waiting.go_on().accepted
        assert waiting.end() == 0
        assert waiting.of(RunFinished)[0].rollouts == 2
        assert len(waiting.of(TrainStep)) == 2
        assert read_run_info(waiting.run_dir).attempt == 1


def test_dumps_that_do_not_fit_are_refused_before_anything_starts(details, tmp_path):
    _, folder = details
    flags = {
        "--n-samples-per-prompt 4 --rollout-batch-size 16": "--n-samples-per-prompt 8",
        "--rollout-batch-size 4 --global-batch-size 32": "--rollout-batch-size 8",
    }
    load = f"--load-debug-rollout-data {folder}/rollout_data/{{rollout_id}}.pt"
    for words, fix in flags.items():
        refused = subprocess.run(
            [
                *(sys.executable, "relax/entrypoints/train.py", "--config", str(DEMO)),
                *("--run-dir", str(tmp_path / "never"), "--num-rollout", "1"),
                *shlex.split(f"{load} {words}"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode == 2
        assert fix in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "never").exists()
