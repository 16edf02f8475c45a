"""Following a run folder: replay, live samples, lost drivers, coalescing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from screens import make_run
from scripted_run import Script, ScriptedRun

from relax.control.run_folder import process_start, read_run_info, write_run_info
from relax.errors import RecordError
from relax.events.types import (
    AttemptOpened,
    Commanded,
    CommandPhase,
    Event,
    Stage,
    StageFinished,
)
from relax.measure.reduction import Mean
from relax_tui.launch import start_driver
from relax_tui.sources.ages import coarse_age, coarse_seconds
from relax_tui.sources.base import Liveness
from relax_tui.sources.fold import RunFold
from relax_tui.sources.run_folder import RunFolderSource
from relax_tui.sources.shape import figures


class Collected:
    """Snapshots that a source posted, with the time of each."""

    def __init__(self):
        self.snapshots = []
        self.times = []
        self._changed = threading.Condition()

    def post(self, snapshot):
        with self._changed:
            self.snapshots.append(snapshot)
            self.times.append(time.monotonic())
            self._changed.notify_all()

    def wait(self, holds, seconds=10.0):
        with self._changed:
            found = self._changed.wait_for(
                lambda: self.snapshots and holds(self.snapshots[-1]), seconds
            )
        assert found, self.snapshots[-1:] and self.snapshots[-1].now
        return self.snapshots[-1]


@pytest.fixture
def follow():
    sources = []

    def start(run_dir, **more):
        collected = Collected()
        source = RunFolderSource(run_dir, **more)
        source.start(collected.post)
        sources.append(source)
        return source, collected

    yield start
    for source in sources:
        source.stop()


def test_attaching_replays_everything(tmp_path, follow):
    run = make_run(tmp_path / "run", "finished")
    run.close()
    _, collected = follow(tmp_path / "run")
    snapshot = collected.wait(lambda s: s.now.liveness is Liveness.FINISHED)
    assert snapshot.header.num_rollout == 200
    assert len(snapshot.series["rollout/raw_reward"].points) == 4
    assert snapshot.rollouts == ((1, 0), (1, 1), (1, 2), (1, 3))
    assert snapshot.viewed.rollout_id == 3
    figures = {figure.label: figure for figure in snapshot.figures}
    assert figures["KL"].text == "0"
    assert figures["KL"].status == "PASS"
    assert figures["unequal"].text.startswith("0 of ")
    assert figures["grad_norm"].text == "0.412"


def test_samples_are_seen_before_their_rollout_ends(tmp_path, follow):
    run = make_run(tmp_path / "run", "generating")
    _, collected = follow(tmp_path / "run")
    snapshot = collected.wait(lambda s: s.viewed and s.viewed.rollout_id == 4)
    assert len(snapshot.viewed.rows) == 7
    assert not snapshot.viewed.complete
    assert snapshot.progress.done == 7
    tokens = snapshot.viewed.tokens.sample(0)
    assert "rollout_log_probs" in tokens.columns
    assert "not yet" in tokens.absent["log_probs"]
    run.close()


def test_a_driver_that_is_gone_means_lost(tmp_path, follow):
    run = make_run(tmp_path / "run", "paused")
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    info = replace(
        read_run_info(tmp_path / "run"),
        pid=sleeper.pid,
        process_start=process_start(sleeper.pid),
    )
    write_run_info(tmp_path / "run", info)
    _, collected = follow(tmp_path / "run")
    collected.wait(lambda s: s.now.liveness is Liveness.PAUSED)
    sleeper.kill()
    sleeper.wait()
    snapshot = collected.wait(lambda s: s.now.liveness is Liveness.LOST)
    assert str(sleeper.pid) in snapshot.now.detail
    assert snapshot.now.since == pytest.approx(time.time(), abs=60)
    assert snapshot.paused is None
    run.close()


def test_a_reused_pid_is_not_the_driver(tmp_path):
    run = make_run(tmp_path / "run", "paused")
    info = replace(read_run_info(tmp_path / "run"), process_start=12345)
    write_run_info(tmp_path / "run", info)
    snapshot = RunFolderSource(tmp_path / "run").collect()
    assert snapshot.now.liveness is Liveness.LOST
    run.close()


def test_another_host_is_read_only_and_says_how_to_reach_it(tmp_path):
    run = make_run(tmp_path / "run", "paused")
    info = replace(read_run_info(tmp_path / "run"), host="gpu-17")
    write_run_info(tmp_path / "run", info)
    snapshot = RunFolderSource(tmp_path / "run").collect()
    assert snapshot.now.liveness is Liveness.PAUSED
    assert "ssh gpu-17" in snapshot.header.read_only
    run.close()


def test_ticks_are_coalesced_but_answers_come_at_once(tmp_path, follow):
    run = make_run(tmp_path / "run", "paused")
    _, collected = follow(tmp_path / "run")
    collected.wait(lambda s: s.viewed is not None)
    before = len(collected.snapshots)
    for _ in range(20):
        run.start(4, Stage.GENERATE)
        run.end(4, Stage.GENERATE)
        time.sleep(0.1)
    assert len(collected.snapshots) - before <= 4
    sent = time.monotonic()
    run.events.append(
        Commanded(command_id="x", kind="pause", phase=CommandPhase.ACCEPTED, by="me")
    )
    collected.wait(lambda s: s.commands and s.commands[-1].id == "x")
    assert time.monotonic() - sent < 0.8
    run.close()


def test_an_idle_run_posts_nothing(tmp_path, follow):
    run = make_run(tmp_path / "run", "finished")
    run.close()
    _, collected = follow(tmp_path / "run")
    collected.wait(lambda s: s.viewed is not None)
    before = len(collected.snapshots)
    time.sleep(2.5)
    assert len(collected.snapshots) == before


def test_history_is_looked_at_and_left(tmp_path, follow):
    run = make_run(tmp_path / "run", "paused")
    source, collected = follow(tmp_path / "run")
    collected.wait(lambda s: s.viewed is not None)
    source.view((1, 1))
    snapshot = collected.wait(lambda s: s.viewed.rollout_id == 1)
    assert not snapshot.following
    source.view(None)
    assert collected.wait(lambda s: s.viewed.rollout_id == 3).following
    run.close()


def test_a_driver_that_never_began_is_reported_with_its_words(tmp_path, follow):
    died = []
    launch = start_driver(["--no-such-flag", "1"], run_dir=tmp_path / "run")
    follow(launch.run_dir, launch=launch, on_died=died.append)
    deadline = time.monotonic() + 90
    while not died and time.monotonic() < deadline:
        time.sleep(0.05)
    assert died[0].returncode == 2
    assert "no-such-flag" in str(died[0])


@pytest.mark.parametrize(
    ("name", "missing", "rows"),
    [
        ("samples", "prompts, responses, rewards", 0),
        ("logprobs", "log_probs, ref_log_probs", 16),
        ("train", "where each sample was in training", 16),
    ],
)
def test_a_damaged_file_is_named_and_what_is_whole_is_shown(
    name, missing, rows, tmp_path
):
    run = make_run(tmp_path / "run", "finished")
    run.close()
    path = tmp_path / f"run/steps/a01/000003/{name}.arrow"
    os.truncate(path, 100)
    view = RunFolderSource(tmp_path / "run").collect().viewed
    assert view.rollout_id == 3
    (damaged,) = view.damaged
    assert str(path) in damaged
    assert "not a whole Arrow file" in damaged
    assert missing in damaged
    assert "[ and ]" in damaged
    assert len(view.rows) == rows
    if name == "logprobs":
        assert view.tokens.sample(0).absent["log_probs"] == "logprobs.arrow is damaged"


def test_a_damaged_vocabulary_is_named(tmp_path):
    run = make_run(tmp_path / "run", "finished")
    run.close()
    os.truncate(tmp_path / "run" / run.vocab, 40)
    view = RunFolderSource(tmp_path / "run").collect().viewed
    assert run.vocab in view.damaged[0]
    assert len(view.rows) == 16


def test_a_file_that_is_arrow_but_no_record_is_damage_too(tmp_path):
    import pyarrow as pa

    run = make_run(tmp_path / "run", "finished")
    run.close()
    path = tmp_path / "run/steps/a01/000003/samples.arrow"
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    table = table.drop_columns(["response_length"])
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    (damaged,) = RunFolderSource(tmp_path / "run").collect().viewed.damaged
    assert "not those of a samples file" in damaged


def test_a_folder_that_is_no_run(tmp_path):
    source = RunFolderSource(tmp_path)
    assert source.collect().now.liveness is Liveness.LOST
    with pytest.raises(RecordError, match=r"no run\.json"):
        read_run_info(tmp_path)


def test_a_slow_stage_and_a_failure_are_kept(tmp_path):
    run = ScriptedRun(tmp_path / "run", Script()).open()
    run.rollout(0)
    run.flush()
    from relax.events.types import RunFailed, StageSlow

    run.start(1, Stage.TRAIN)
    run.events.append(
        StageSlow(
            rollout_id=1,
            stage=Stage.TRAIN,
            seconds=9.0,
            median_seconds=0.6,
            places={"train-1": "worker.py:88 in step"},
        )
    )
    run.flush()
    snapshot = RunFolderSource(tmp_path / "run").collect()
    slow = next(line for line in snapshot.stages if line.slow)
    assert "worker.py:88" in slow.slow
    run.events.append(
        RunFailed(what="rank died", code="worker", rank="train-1", lines=("boom",))
    )
    run.close()
    snapshot = RunFolderSource(tmp_path / "run").collect()
    assert snapshot.now.liveness is Liveness.FAILED
    assert snapshot.failure.rank == "train-1"


def test_ages_are_coarse():
    ages = [coarse_age(s) for s in (0, 4, 7, 12, 75, 700, 9000)]
    assert ages == ["now", "3 s", "5 s", "10 s", "1 min", "10 min", "2 h"]
    assert len({coarse_age(float(s)) for s in range(3600)}) < 30
    assert coarse_seconds(7.9) == "7 s"
    assert coarse_seconds(44) == "40 s"
    assert coarse_seconds(95) == "1:30 min"


def test_a_second_attempt_does_not_show_the_first_ones_numbers():
    def event(seq, attempt, payload):
        return Event(seq, attempt, 100.0 + seq, 1.0, payload)

    def opened(seq, attempt):
        payload = AttemptOpened(run_id="r", host="h", pid=1, boot_id="b")
        return event(seq, attempt, payload)

    metrics = {"rollout/raw_reward": Mean(3.0, 4)}
    reward = StageFinished(
        rollout_id=41, stage=Stage.REWARD, seconds=1.0, metrics=metrics
    )
    fold = RunFold()
    fold.apply([opened(0, 1), event(1, 1, reward)])
    assert fold.snapshot(200.0, lost="").latest
    fold.apply([opened(2, 1)])
    assert fold.snapshot(200.0, lost="").latest
    fold.apply([opened(3, 2)])
    snapshot = fold.snapshot(200.0, lost="")
    assert snapshot.header.attempt == 2
    assert not snapshot.latest


def test_the_first_grad_norm_is_shown_by_part_the_largest_first():
    found = {
        "train/grad_norm": 0.5,
        "train/grad_norm/embedding": 0.3,
        "train/grad_norm/attention": 0.4,
        "train/grad_norm/router": float("nan"),
        "train/grad_norm_layer/0": 0.1,
    }
    *_, parts = figures(found, {}, 0)
    assert (parts.label, parts.text) == (
        "grad by part",
        "router nan attn 0.4 emb 0.3",
    )
    assert "grad by part" not in {f.label for f in figures({}, {}, 0)}


def test_looking_back_all_numbers_are_of_one_rollout(tmp_path):
    run = make_run(tmp_path / "run", "paused")
    run.close()
    source = RunFolderSource(tmp_path / "run")
    now = source.collect()
    source.view((1, 1))
    then = source.collect()
    assert (now.following, then.following) == (True, False)
    assert then.viewed.rollout_id == 1
    assert then.latest_rollouts == (1, 1)
    assert then.stages_rollout == 1
    assert len(then.stages) == 7
    assert [len(s.series["train/grad_norm"].points) for s in (now, then)] == [4, 2]
    assert then.latest["train/grad_norm"] == now.series["train/grad_norm"].points[1]
    assert {v.verdict.where.rollout_id for v in then.verdicts} == {1}
    assert then.header == now.header
    assert then.now == replace(now.now)
    # What the first rollout said is named as such, and stays.
    assert then.figures == now.figures


def test_what_could_not_be_read_of_the_event_log_is_counted(tmp_path):
    run = make_run(tmp_path / "run", "finished")
    run.close()
    (path,) = (tmp_path / "run/events").iterdir()
    good = path.read_bytes().splitlines(keepends=True)
    future = good[-1].replace(b"run_finished", b"moon_landed")
    assert future != good[-1]
    path.write_bytes(b"".join([*good[:-1], b"{torn\n", b"[1]\n", future, good[-1]]))
    snapshot = RunFolderSource(tmp_path / "run").collect()
    assert snapshot.unread == (
        "2 lines of the event log were not readable",
        "events of kinds that this version does not know: moon_landed",
    )


def command(fold, kind, phase, seq=50):
    payload = Commanded(command_id="x", kind=kind, phase=phase, by="me")
    fold.apply([Event(seq, 1, 100.0 + seq, 1.0, payload)])


@pytest.mark.parametrize(("kind", "word"), [("stop", "stopping"), ("kill", "killing")])
def test_a_run_told_to_end_is_ending_until_it_has_ended(kind, word):
    from relax.events.types import Continued, RunFinished, StageStarted
    from relax_tui.commands import impossible, outcome_words
    from relax_tui.lines import plain

    def event(seq, payload):
        return Event(seq, 1, 100.0 + seq, 1.0, payload)

    fold = RunFold()
    fold.apply([event(1, StageStarted(rollout_id=2, stage=Stage.TRAIN))])
    assert fold.snapshot(200.0).now.liveness == "running"
    command(fold, kind, CommandPhase.ACCEPTED)
    command(fold, kind, CommandPhase.DONE)
    fold.apply([event(60, Continued(rollout_id=2))])
    snapshot = fold.snapshot(200.0)
    assert snapshot.now.liveness == word
    assert word in plain(outcome_words(snapshot, {"x": kind}))
    assert "done" not in plain(outcome_words(snapshot, {"x": kind}))
    assert "K kills it" in impossible("pause", snapshot)
    assert impossible("kill_run", snapshot) == ""
    fold.apply([event(70, RunFinished(why="stopped", rollouts=2))])
    snapshot = fold.snapshot(200.0)
    assert snapshot.now.liveness == "stopped"
    words = plain(outcome_words(snapshot, {"x": kind}))
    assert "done: the run is stopped after 2 rollouts" in words


def test_a_refused_stop_stops_nothing():
    fold = RunFold()
    command(fold, "stop", CommandPhase.REFUSED)
    assert fold.snapshot(200.0).now.liveness == "starting"


def test_who_is_stuck_comes_before_who_waits_for_it():
    from relax_tui.sources.stage_book import stuck_first

    assert stuck_first(
        {
            "reward-0": "worker.py:1050 in main_loop",
            "train-0": "distributed_c10d.py:2810 in all_reduce",
            "train-1": "drills.py:88 in hang",
            "train-2": "",
        }
    ) == [
        "train-1: drills.py:88 in hang",
        "train-2: in no Python code",
        "train-0: distributed_c10d.py:2810 in all_reduce",
        "idle: reward-0",
    ]
