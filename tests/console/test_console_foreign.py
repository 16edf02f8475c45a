"""Runs of other engines in the console: read-only, followed while they grow."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_console_cli import relax_tui

from relax.dump.write import write_rollout_dump
from relax.errors import DumpMissing
from relax.triage.verdict import Status
from relax_tui.app import ConsoleApp
from relax_tui.commands import impossible
from relax_tui.report import foreign_report
from relax_tui.screens.log import LogPane, around
from relax_tui.sources.base import Liveness
from relax_tui.sources.foreign import ForeignSource
from relax_tui.theme import UNICODE

sys.path.append(str(Path(__file__).parents[1] / "unit" / "dump" / "logs"))
from printed_logs import healthy


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def open_source():
    sources = []

    def make(*paths):
        sources.append(ForeignSource(paths))
        return sources[-1]

    yield make
    for source in sources:
        source.stop()


class Posted:
    """Snapshots that a source posted."""

    def __init__(self):
        self.newest = None
        self._changed = threading.Condition()

    def post(self, snapshot):
        with self._changed:
            self.newest = snapshot
            self._changed.notify_all()

    def wait(self, holds, seconds=30.0):
        with self._changed:
            found = self._changed.wait_for(
                lambda: self.newest is not None and holds(self.newest), seconds
            )
        assert found, self.newest
        return self.newest


def dumped(folder, rollout_id=0):
    draw = np.random.default_rng(rollout_id)
    samples = [
        {
            "index": number,
            "group_index": number // 2,
            "prompt": "6 x 7?",
            "tokens": draw.integers(5, 900, 30).tolist(),
            "response": f"answer {number}",
            "response_length": 20,
            "reward": float(number % 2),
            "loss_mask": [1] * 20,
            "rollout_log_probs": (-draw.exponential(0.3, 20)).tolist(),
            "status": "completed",
        }
        for number in range(4)
    ]
    write_rollout_dump(folder / f"{rollout_id}.pt", samples, rollout_id=rollout_id)
    return folder


def test_a_log_gives_numbers_responses_and_verdicts(tmp_path, open_source):
    snapshot = open_source(healthy(3).write(tmp_path / "run.log")).collect()
    assert snapshot.latest["train/grad_norm"] == 0.4
    assert snapshot.series["rollout/raw_reward"].points == (0.5, 0.5, 0.5)
    assert [number for _, number in snapshot.rollouts] == [0, 1, 2]
    assert "The answer is 42." in snapshot.viewed.rows[0].response
    found = {line.verdict.rule: line.verdict.status for line in snapshot.verdicts}
    assert found["grad_norm"] is Status.PASS
    assert found["logs"] is Status.PASS
    assert "engine_illegal_access" not in found


def test_looking_back_shows_what_was_known_then(tmp_path, open_source):
    log = healthy(3)
    log.step(2, {"train/grad_norm": 7.5})
    source = open_source(log.write(tmp_path / "run.log"))
    assert source.collect().latest["train/grad_norm"] == 7.5
    source.view((1, 1))
    snapshot = source.collect()
    assert not snapshot.following
    assert snapshot.latest["train/grad_norm"] == 0.4
    assert {line.verdict.where.rollout_id for line in snapshot.verdicts} == {1}
    assert len(snapshot.series["train/grad_norm"].points) == 2


def test_nothing_can_be_steered_and_it_says_why(tmp_path, open_source):
    snapshot = open_source(healthy(1).write(tmp_path / "run.log")).collect()
    for key in ("pause", "step_stage", "stop_run", "stacks"):
        assert "Relax, slime or miles" in impossible(key, snapshot)


def test_a_dump_folder_shows_tokens(tmp_path, open_source):
    dumped(tmp_path / "dumps", 0)
    dumped(tmp_path / "dumps", 1)
    source = open_source(tmp_path / "dumps")
    snapshot = source.collect()
    assert snapshot.rollouts == ((1, 0), (1, 1))
    assert snapshot.viewed.rollout_id == 1
    tokens = snapshot.viewed.tokens.sample(2)
    assert len(tokens.ids) == 20
    assert len(tokens.columns["rollout_log_probs"]) == 20
    assert snapshot.now.weights_version is None
    source.view((1, 0))
    assert source.collect().viewed.rollout_id == 0


def test_log_and_dumps_together(tmp_path, open_source):
    log = healthy(2).write(tmp_path / "run.log")
    snapshot = open_source(log, dumped(tmp_path / "dumps", 1)).collect()
    assert snapshot.rollouts == ((1, 0), (1, 1))
    assert snapshot.viewed.rows[0].response == "answer 0"
    assert snapshot.header.log == str(log)


def test_a_log_that_grows_is_followed(tmp_path, open_source):
    path = healthy(1).write(tmp_path / "run.log")
    source, posted = open_source(path), Posted()
    source.start(posted.post)
    first = posted.wait(lambda s: s.latest)
    assert first.now.liveness is Liveness.RUNNING
    with path.open("a") as stream:
        stream.write("rollout 7: {'rollout/raw_reward': 0.875}\n")
    snapshot = posted.wait(lambda s: s.now.rollout_id == 7)
    assert snapshot.latest["rollout/raw_reward"] == 0.875
    posted.wait(lambda s: s.verdicts)


def test_dumps_that_appear_are_found(tmp_path, open_source, monkeypatch):
    monkeypatch.setattr("relax_tui.sources.foreign.LOOK_SECONDS", 0.1)
    folder = dumped(tmp_path / "dumps", 0)
    source, posted = open_source(folder), Posted()
    source.start(posted.post)
    posted.wait(lambda s: s.rollouts == ((1, 0),))
    dumped(folder, 1)
    posted.wait(lambda s: s.rollouts == ((1, 0), (1, 1)))


def test_a_log_at_rest_is_quiet(tmp_path, open_source):
    import os

    path = healthy(1).write(tmp_path / "run.log")
    os.utime(path, (time.time() - 7200, time.time() - 7200))
    now = open_source(path).collect().now
    assert now.liveness is Liveness.QUIET
    assert "2 h old" in now.detail


def test_a_broken_dump_is_a_note_and_no_crash(tmp_path, open_source):
    folder = dumped(tmp_path / "dumps", 0)
    path = folder / "0.pt"
    path.write_bytes(path.read_bytes()[:400])
    (folder / "x.log").write_text("nothing\n")
    snapshot = open_source(folder).collect()
    assert snapshot.viewed is None or not snapshot.viewed.rows


def test_no_such_path(tmp_path):
    with pytest.raises(DumpMissing):
        ForeignSource([tmp_path / "none"])


def test_the_report_of_a_foreign_run(tmp_path):
    log = healthy(2).write(tmp_path / "run.log")
    text = foreign_report([log, dumped(tmp_path / "dumps", 1)], glyphs=UNICODE)
    assert "READ-ONLY" in text
    assert "answer 0" in text
    assert "another engine's stages are not known" in text
    one = foreign_report([tmp_path / "dumps"], glyphs=UNICODE, rollout=1, sample=2)
    assert "20 tokens" in one


def test_lengths_that_are_not_known_are_not_numbers(tmp_path):
    text = foreign_report([healthy(1).write(tmp_path / "run.log")], glyphs=UNICODE)
    (row,) = [line for line in text.splitlines() if "The answer is 42" in line]
    assert "-1" not in row


async def test_screens_of_a_foreign_run(tmp_path):
    log = healthy(2).write(tmp_path / "run.log")
    paths = (log, dumped(tmp_path / "dumps", 1))
    source = ForeignSource(paths)
    app = ConsoleApp(lambda folder, app: source, run_dir=log)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for _ in range(100):
            if app.newest.viewed is not None and app.newest.viewed.rows:
                break
            await pilot.pause(0.1)
        assert app.newest.viewed.rows
        await pilot.press("p")
        await pilot.pause()
        await pilot.press("L")
        await pilot.pause()
        lines = app.screen.query_one(LogPane).log_lines
        assert any("Finish rollout" in text for text in lines)


def test_commands_over_foreign_files(tmp_path):
    log = healthy(2).write(tmp_path / "run.log")
    shown = relax_tui("show", "run.log", tmp_path=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "The answer is 42" in shown.stdout
    assert relax_tui("attach", "run.log", tmp_path=tmp_path).returncode == 0
    checked = relax_tui("check", "run.log", "--json", tmp_path=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["rollouts"] == [0, 1]
    with log.open("a") as stream:
        stream.write("step 2: {'train/grad_norm': nan}\n")
    assert relax_tui("check", "run.log", tmp_path=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("check", "none.log"), 2, "there is no such file"),
        (("check", "empty.log"), 3, "not checked"),
        (("check", "empty.log", "--rule", "nonsense"), 2, "no such rule"),
        (("check", "empty.log", "--fail-on", "info"), 2, "fail or warn"),
        (("lint", "bad.yaml"), 1, "--debug-train-only"),
        (("lint", "good.yaml"), 0, "nothing found"),
        (("lint", "none.yaml"), 2, "no such file"),
        (("diff", "empty.log", "empty.log"), 2, "no rollout"),
        (("show", "empty.log", "none.log"), 2, "not all of these exist"),
        (("rules",), 0, "engine_illegal_access"),
    ],
)
def test_exit_codes_and_words(tmp_path, arguments, code, words):
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "good.yaml").write_text("lr: 1e-6\n")
    (tmp_path / "bad.yaml").write_text("debug_train_only: true\n")
    done = relax_tui(*arguments, tmp_path=tmp_path)
    assert done.returncode == code, done
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


async def test_enter_opens_the_line_that_a_verdict_stands_on(tmp_path):
    log = healthy(2)
    log.noise(3_000)
    log.say("[TP0] CUDA error: an illegal memory access was encountered")
    log.noise(3_000)
    path = log.write(tmp_path / "run.log")
    wanted = next(n for n, row in enumerate(log.lines) if "illegal" in row)
    source = ForeignSource([path])
    app = ConsoleApp(lambda folder, app: source, run_dir=path)
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(300):
            if app.newest.verdicts:
                break
            await pilot.pause(0.1)
        await pilot.press("t")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        pane = app.screen.query_one(LogPane)
        assert "illegal memory access" in pane.log_lines[pane.cursor]
        assert pane.file == f"run.log, line {wanted + 1}"


def test_lines_around_one_of_a_long_file(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(f"line {n}\n" for n in range(1, 300_001)))
    for line in (1, 2, 499, 501, 150_000, 299_999, 300_000):
        first, lines = around(path, line)
        assert lines[line - first] == f"line {line}"
    assert around(path, 400_000)[1] == []
