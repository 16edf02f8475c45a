"""Dumps, probes, replays and excursions of a live run: the run itself never notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    ReplayKind,
    ReplayOrder,
    ReplayWeights,
)
from relax.dump.catalogue import find_dumps, verify
from relax.events.types import (
    AsideEvent,
    Commanded,
    CommandKind,
    CommandPhase,
    DumpFailed,
    DumpWritten,
    ExcursionEnded,
    ExcursionStarted,
    Mode,
    Paused,
    ReplayFinished,
    RunFinished,
    StageFinished,
    TrainStep,
    WeightsUpdated,
)
from relax.records.open import StepRecord, list_rollouts
from relax.records.schema import StageFile
from tests.process.runs import Run, started

pytestmark = pytest.mark.engine

ROLLOUTS = 5
FLAGS = ("--num-rollout", str(ROLLOUTS), "--keep-weights", "3", "--keep-rollouts", "3")


def fate(run: Run, kind: CommandKind, order) -> Commanded:
    """Gives an order; what became of it."""
    answer = run.command(kind, order=order)
    assert answer.accepted, answer.reason

    def ended():
        mine = [c for c in run.of(Commanded) if c.command_id == answer.id]
        return [c for c in mine if c.phase is not CommandPhase.ACCEPTED]

    return run.wait(ended)[0]


def done(run: Run, kind: CommandKind, order) -> str:
    ended = fate(run, kind, order)
    assert ended.phase is CommandPhase.DONE, ended.reason
    return ended.reason


def replay(run: Run, **order) -> ReplayFinished:
    done(run, CommandKind.REPLAY, ReplayOrder(**order))
    return run.of(ReplayFinished)[-1]


def step_rollout(run: Run) -> None:
    pauses = len(run.of(Paused))
    assert run.command(CommandKind.STEP_ROLLOUT).accepted
    run.wait_for(Paused, count=pauses + 1)


def go_to(run: Run, place: str) -> None:
    """Lets a paused run go on to the safe point before ``rollout:stage``."""
    run.command(CommandKind.SET_STOPS, conditions=(place,))
    run.go_on()
    run.wait(lambda: run.of(Paused)[-1].why == place)


def of_the_engine(name: str) -> bool:
    """Whether a number depends on which requests the engine happened to batch."""
    return "rollout" in name and name not in ("rollout_id",)


def bits(run_dir: Path) -> list:
    """All that a run computed: tokens and log-probs of every rollout."""
    found = []
    for attempt, rollout_id in list_rollouts(run_dir):
        record = StepRecord(run_dir, attempt, rollout_id)
        tables = [record.table(stage_file) for stage_file in StageFile]
        found.append(
            [
                table.drop_columns(list(filter(of_the_engine, table.column_names)))
                for table in tables
            ]
        )
    return found


def metrics(run: Run) -> list:
    return [
        *[
            {k: v for k, v in s.metrics.items() if not of_the_engine(k)}
            for s in run.of(TrainStep)
        ],
        *[(u.version, u.fingerprint) for u in run.of(WeightsUpdated)],
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with started(folder, *FLAGS) as run:
        assert run.end(seconds=120) == 0
        yield run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that stands before rollout 2, and goes on when the last test says so."""
    folder = tmp_path_factory.mktemp("run") / "run"
    with started(folder, *FLAGS, "--pause-at", "2:generate") as run:
        run.wait_for(Paused)
        yield run


def test_1_a_kept_rollout_is_dumped_after_the_fact(run, tmp_path):
    import torch

    did = done(run, CommandKind.DUMP, DumpOrder(folder=str(tmp_path / "d")))
    assert did.startswith("rollout 1, its samples and ranks")
    done(run, CommandKind.DUMP, DumpOrder(rollout_id=0, folder=str(tmp_path / "d")))
    assert len(run.of(DumpWritten)) == 6
    entries = find_dumps(tmp_path / "d")
    assert [verify(entry) for entry in entries] == [[]] * 4
    file = torch.load(tmp_path / "d" / "rollout_data" / "0.pt", weights_only=True)
    tokens = run.record(0).table(StageFile.SAMPLES)["tokens"].to_pylist()
    assert [sample["tokens"] for sample in file["samples"]] == tokens


def test_2_a_dump_that_cannot_be_written_fails_and_the_run_goes_on(run, tmp_path):
    (tmp_path / "file").write_text("in the way")
    order = DumpOrder(folder=str(tmp_path / "file"))
    failed = fate(run, CommandKind.DUMP, order)
    assert failed.phase is CommandPhase.FAILED
    assert str(tmp_path / "file") in failed.reason
    failed = fate(run, CommandKind.DUMP, DumpOrder(rollout_id=7))
    assert "rollout 7 is not kept (kept: 0, 1)" in failed.reason
    assert run.status().phase == "paused"


def test_3_a_probe_on_the_weights_of_the_record_gives_every_bit(run):
    newest = replay(run, repeat=2)
    older = replay(run, rollout_id=0)
    for found, version in ((newest, 1), (older, 0)):
        assert (found.weights, found.weights_version) == ("record", version)
        compared = {c["name"]: c for c in found.comparisons}
        assert {"log_probs", "entropy", "ref_log_probs", "advantages"} <= set(compared)
        assert {"train/loss", "train/grad_norm"} <= set(compared)
        assert all(c["exact"] and c["unequal"] == 0 for c in compared.values())
        assert compared["log_probs"]["compared"] > 1000
        assert found.changed == ()
        assert found.tensors > 100
    assert "repeated passes gave equal bits" in newest.notes
    record = StepRecord(run.run_dir, 1, newest.name)
    assert record.metadata(StageFile.LOGPROBS).source == "replay"
    assert record.table(StageFile.LOGPROBS).num_rows == 64


def test_4_a_dump_is_probed_and_a_sample_within_its_micro_batch(run, tmp_path):
    done(run, CommandKind.DUMP, DumpOrder(rollout_id=0, folder=str(tmp_path)))
    dump = str(tmp_path / "rollout_data" / "0.pt")
    found = replay(run, source=dump)
    assert (found.weights, found.equal) == ("record", True)
    names = [c["name"] for c in found.comparisons]
    assert names == ["log_probs", "ref_log_probs", "entropy", "advantages", "returns"]
    one = replay(run, source=dump, samples=(5,))
    assert one.samples == 1
    assert all(c["exact"] and c["unequal"] == 0 for c in one.comparisons)
    alone = replay(run, source=dump, samples=(5,), alone=True)
    assert alone.equal
    assert not any(c["exact"] for c in alone.comparisons)
    assert "other micro-batches" in "; ".join(alone.notes)
    failed = fate(run, CommandKind.REPLAY, ReplayOrder(source=dump, samples=(900,)))
    assert "has no sample 900" in failed.reason


def test_5_on_other_weights_only_what_does_not_depend_on_them_is_compared(run):
    found = replay(run, weights=ReplayWeights.NOW)
    assert (found.weights, found.weights_version) == ("now", 2)
    names = [c["name"] for c in found.comparisons]
    assert names == ["ref_log_probs", "advantages", "returns"]
    assert found.equal
    assert "are not compared" in found.notes[0]


def test_6_responses_are_scored_again_and_failures_are_no_zeros(run):
    same = replay(run, kind=ReplayKind.REWARD)
    assert [c["name"] for c in same.comparisons] == ["reward", "normalized_reward"]
    assert same.equal
    other = replay(run, kind=ReplayKind.REWARD, reward="random")
    assert not other.equal
    path = "tests.process.broken_rewards.raises_for_even"
    broken = replay(run, kind=ReplayKind.REWARD, reward=path)
    assert broken.metrics["reward/failed"].value == 32
    assert broken.metrics["reward/now"].count == 32
    assert "ValueError" in broken.notes[0]


def test_7_train_and_forge_replays_leave_the_run_as_it_was(run):
    for kind in (ReplayKind.TRAIN, ReplayKind.FORGE):
        found = replay(run, kind=kind)
        assert found.changed == ()
        assert found.metrics["train/grad_norm"].value > 0
    asides = {event.event["type"] for event in run.of(AsideEvent)}
    assert {"train_step", "weights_updated"} <= asides
    assert len(run.of(TrainStep)) == 2


def test_8_excursions_of_all_kinds_come_back_to_the_same_bits(run):
    for place, mode in (
        ("2:generate", Mode.TRAIN_ONLY),
        ("2:log_probs", Mode.ROLLOUT_ONLY),
        ("2:train", Mode.FORGE),
        ("3:update_weights", Mode.TRAIN_ONLY),
        ("4:reward", Mode.ROLLOUT_ONLY),
    ):
        if run.of(Paused)[-1].why != place:
            go_to(run, place)
        before = run.status()
        done(run, CommandKind.MODE, ModeOrder(mode=mode))
        away = run.status()
        assert (away.mode, away.phase) == (mode, "paused")
        assert away.excursion
        step_rollout(run)
        done(run, CommandKind.MODE, ModeOrder(mode=Mode.FULL))
        ended = run.of(ExcursionEnded)[-1]
        assert (ended.kept, ended.changed) == (False, ())
        after = run.status()
        place_of = ("phase", "mode", "rollout_id", "stage", "excursion")
        assert all(getattr(before, n) == getattr(after, n) for n in place_of)
    names = [started.name for started in run.of(ExcursionStarted)]
    assert len(set(names)) == 5
    assert StepRecord(run.run_dir, 1, f"{names[0]}.0").has(StageFile.TRAIN)
    assert not StepRecord(run.run_dir, 1, f"{names[1]}.0").has(StageFile.LOGPROBS)


def test_9_the_run_ends_bit_for_bit_as_one_that_nobody_touched(run, undisturbed):
    run.command(CommandKind.SET_STOPS, conditions=())
    run.go_on()
    assert run.end(seconds=120) == 0
    assert run.of(RunFinished)[0].why == "done"
    assert metrics(run) == metrics(undisturbed)
    mine, theirs = bits(run.run_dir), bits(undisturbed.run_dir)
    assert len(mine) == len(theirs) == ROLLOUTS
    for left, right in zip(mine, theirs, strict=True):
        assert all(a.equals(b) for a, b in zip(left, right, strict=True))
    stages = [s for s in run.of(StageFinished) if s.rollout_id == 3]
    assert len(stages) == 7


def test_two_replicas_and_what_an_excursion_made_is_kept(tmp_path):
    flags = (
        *(*FLAGS, "--pause-at", "1:generate", "--actor-num-gpus-per-node", "2"),
        *("--save-debug-rollout-data", "/proc/nowhere/{rollout_id}.pt"),
        *("--dump-on", "grad_norm > 0"),
    )
    with started(tmp_path / "run", *flags) as run:
        run.wait_for(Paused)
        (failed,) = run.of(DumpFailed)
        assert failed.path.startswith("/proc/nowhere")
        by_itself = [e.path for e in run.of(DumpWritten) if e.kind == "train"]
        place = run.run_dir / "dumps" / "train_data"
        assert by_itself == [str(place / "0_0.pt"), str(place / "0_1.pt")]

        found = replay(run)
        assert (found.weights_version, found.changed) == (0, ())
        assert all(c["exact"] and c["unequal"] == 0 for c in found.comparisons)
        assert len(found.comparisons) > 10
        done(run, CommandKind.MODE, ModeOrder(mode=Mode.TRAIN_ONLY))
        step_rollout(run)
        done(run, CommandKind.MODE, ModeOrder(mode=Mode.FULL))
        assert run.of(ExcursionEnded)[0].changed == ()

        done(run, CommandKind.MODE, ModeOrder(mode=Mode.TRAIN_ONLY))
        step_rollout(run)
        done(run, CommandKind.MODE, ModeOrder(mode=Mode.FULL, keep=True))
        assert run.of(ExcursionEnded)[1].kept
        pushed = run.of(WeightsUpdated)[-1]
        assert pushed.version == 2
        assert pushed.fingerprint == pushed.engine_fingerprint
        step_rollout(run)
        assert run.of(WeightsUpdated)[-1].version == 3
        assert [step.step for step in run.of(TrainStep)] == [0, 1]


def test_in_a_new_process_a_dump_with_weights_is_the_same_to_the_bit(tmp_path):
    """A train-only run, which waits until somebody chooses a dump."""
    flags = (*FLAGS, "--pause-at", "2:train")
    with started(tmp_path / "full", *flags) as full:
        full.wait_for(Paused)
        for number in (1, 2):
            order = DumpOrder(
                rollout_id=number, folder=str(tmp_path / "d"), with_weights=True
            )
            assert "with its weights" in done(full, CommandKind.DUMP, order)
        step_rollout(full)
        steps = [dict(step.metrics) for step in full.of(TrainStep)]
    weights = tmp_path / "d" / "weights"
    # Rollout 1 had been trained on: its weights were kept. Those of 2 were whole.
    assert (weights / "1" / "config.json").is_file()
    assert (weights / "2" / "relax_checkpoint.json").is_file()

    for number in (1, 2):
        dump = str(tmp_path / "d" / "rollout_data" / f"{number}.pt")
        flags = ("--debug-train-only", "--load", str(weights / str(number)))
        with started(tmp_path / f"{number}", "--num-rollout", "1", *flags) as run:
            assert "`r` chooses one" in run.wait_for(Paused).why
            assert "no dump is chosen" in run.go_on().reason
            assert "engine-0" not in run.status().processes
            wrong = ReplayOrder(kind=ReplayKind.TRAIN, source=str(tmp_path / "no.pt"))
            assert fate(run, CommandKind.REPLAY, wrong).phase is CommandPhase.FAILED
            if number == 1:
                found = replay(run, source=dump)
                assert (found.weights, found.equal) == ("record", True)
                assert all(c["exact"] for c in found.comparisons)
                assert len(found.comparisons) == 5
            right = ReplayOrder(kind=ReplayKind.TRAIN, source=dump)
            assert done(run, CommandKind.REPLAY, right) == f"training on {dump}"
            assert run.end(seconds=60) == 0
            (again,) = run.of(TrainStep)
            before = {**steps[number], "train/step": again.metrics["train/step"]}
            assert before == again.metrics


def test_the_commands_without_a_console(tmp_path):
    def relax_tui(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "relax_tui.cli", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )

    flags = ("--num-rollout", "2", "--pause-at", "1:generate")
    with started(tmp_path / "run", *flags) as run:
        run.wait_for(Paused)
        place = str(run.run_dir)
        dumped = relax_tui("dump", place, "--to", str(tmp_path / "d"))
        assert dumped.returncode == 0, dumped.stderr
        assert str(tmp_path / "d" / "rollout_data" / "0.pt") in dumped.stdout
        probed = relax_tui("replay", place, str(tmp_path / "d"), "--json")
        assert probed.returncode == 0, probed.stderr
        assert '"equal": true' in probed.stdout
        other = relax_tui("replay", place, "--kind", "reward", "--reward", "random")
        assert other.returncode == 1
        assert "DIFFERS" in other.stdout
        gone = relax_tui("dump", place, "--rollout", "9")
        assert gone.returncode == 6
        assert "rollout 9 is not kept" in gone.stderr
        away = relax_tui("mode", place, "train-only")
        assert "excursion x" in away.stdout
        assert "tensors as before" in relax_tui("mode", place, "full").stdout
