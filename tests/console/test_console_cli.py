"""The command line: errors in one sentence, exit codes, nothing heavy imported."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from screens import make_run
from scripted_run import RUN_ID

from relax.events.types import Stage, VerdictGiven
from relax.triage.verdict import Cause, Place, Status, Verdict
from relax_tui.runs import farewell

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "megatron", "sglang", "transformers")


def relax_tui(*arguments, tmp_path, stdout=subprocess.PIPE, **environment):
    return subprocess.run(
        [sys.executable, "-m", "relax_tui.cli", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        timeout=60,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            **environment,
        },
    )


@pytest.fixture
def finished(tmp_path):
    make_run(tmp_path / "runs" / "tiny-f00d", "finished").close()
    return tmp_path


def test_show_is_the_screen_without_a_screen(finished):
    done = relax_tui("show", "runs/tiny-f00d", tmp_path=finished)
    assert done.returncode == 0
    assert "KL 0 PASS" in done.stdout
    assert "worst first" in done.stdout
    assert "\x1b" not in done.stdout


def test_show_one_sample(finished):
    done = relax_tui(
        "show", "tiny-f00d", "--rollout", "1", "--sample", "17", tmp_path=finished
    )
    assert done.returncode == 0, done.stderr
    assert "lp - ref" in done.stdout


def test_attach_without_a_terminal_prints_the_report(finished):
    done = relax_tui("attach", tmp_path=finished)
    assert done.returncode == 0
    assert "KL 0 PASS" in done.stdout


def test_ls_as_text_and_as_json(finished):
    heads, row = relax_tui("ls", tmp_path=finished).stdout.splitlines()
    assert heads.split()[:3] == ["NAME", "RUN", "STATE"]
    assert row.split()[:6] == ["tiny-arith", RUN_ID, "finished", "4", "of", "200"]
    (run,) = json.loads(relax_tui("ls", "--json", tmp_path=finished).stdout)
    assert run["state"] == "finished"
    assert run["place"] == "4 of 200"


def test_a_run_is_named_by_what_ls_shows(finished):
    row = relax_tui("ls", tmp_path=finished).stdout.splitlines()[1].split()
    for name in (row[1], row[0], row[-1]):
        assert relax_tui("show", name, tmp_path=finished).returncode == 0


EVIL = "run\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize(
    "arguments",
    [("ls",), (), ("stop", "runs/" + EVIL), ("show", "nothing" + EVIL),
     ("attach", "no" + EVIL), ("tell", "runs/" + EVIL, "pause"),
     ("run", "--run-dir", "no/" + EVIL + "/\0"), ("check", "nothing" + EVIL),
     ("diff", "nothing" + EVIL, "runs/" + EVIL)],
    ids=lambda a: a[0] if a else "none",
)  # fmt: skip
def test_a_folders_name_cannot_speak_to_the_terminal(arguments, tmp_path):
    if any("\0" in word for word in arguments):
        (tmp_path / "no").write_text("a file, so that no folder can be made")
        arguments = tuple(word.replace("/\0", "") for word in arguments)
    make_run(tmp_path / "runs" / EVIL, "finished").close()
    done = relax_tui(*arguments, tmp_path=tmp_path)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr
    assert "owned" in done.stdout + done.stderr


@pytest.mark.parametrize("command", [("ls",), ("show", "runs/tiny-f00d"), ("doctor",)])
def test_a_full_disk_behind_the_output_is_one_sentence(command, finished):
    with Path("/dev/full").open("w") as full:
        done = relax_tui(*command, tmp_path=finished, stdout=full)
    assert done.returncode == 74
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("closed", "code", "words"),
    [(">&-", 74, "standard output is closed"), (">&- 2>&-", 74, ""),
     ("<&-", 0, ""), ("2>&-", 0, "")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["attach runs/tiny-f00d", "ls"])
def test_closed_standard_streams_are_no_traceback(
    command, closed, code, words, finished
):
    line = f"{shlex.quote(sys.executable)} -m relax_tui.cli {command} {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        cwd=finished,
        timeout=60,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(finished / "state"),
        },
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_knows_little_gets_what_it_knows(encoding, tmp_path):
    make_run(tmp_path / "runs" / "tiny-f00d", "ref_mismatch").close()
    done = relax_tui(
        "show", "runs/tiny-f00d", tmp_path=tmp_path, PYTHONIOENCODING=encoding
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "max |d| 0.0032" in done.stdout


def test_nothing_is_cut_in_a_pipe(tmp_path):
    run = make_run(tmp_path / "runs" / "tiny-f00d", "ref_mismatch")
    long = "word " * 60
    place = Place(rollout_id=0)
    verdict = Verdict(
        rule="repetition", section="1", status=Status.WARN, summary="x" * 90,
        where=place, causes=(Cause(text=long, confidence="low", confirm="look"),),
    )  # fmt: skip
    run.events.append(
        VerdictGiven(rollout_id=0, stage=Stage.GENERATE, verdict=verdict.to_json())
    )
    run.close()
    text = relax_tui("show", "runs/tiny-f00d", tmp_path=tmp_path).stdout
    assert "x" * 90 in text
    assert long.strip() in text
    assert not [row for row in text.splitlines() if row.endswith("…")]


def test_details_and_differences_are_whole_in_a_pipe(tmp_path):
    run_dir = tmp_path / "runs" / ("tiny-f00d-" + "long" * 30)
    make_run(run_dir, "ref_mismatch").close()
    brief = relax_tui("check", str(run_dir), tmp_path=tmp_path).stdout
    assert any(row.endswith("…") for row in brief.splitlines())
    whole = relax_tui("check", str(run_dir), "--details", tmp_path=tmp_path).stdout
    assert f"read: run {run_dir}" in whole
    assert not [row for row in whole.splitlines() if row.endswith("…")]
    make_run(tmp_path / "b", "finished").close()
    found = relax_tui("diff", str(run_dir), "b", tmp_path=tmp_path).stdout
    assert str(run_dir) in found
    assert not [row for row in found.splitlines() if row.endswith("…")]


def test_a_refused_start_shows_only_its_own_words(tmp_path):
    log = tmp_path / "r" / "logs" / "driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback of last week\n")
    done = relax_tui("run", "--run-dir", "r", "--", "--no-such-flag", tmp_path=tmp_path)
    assert done.returncode == 2
    assert "no-such-flag" in done.stderr
    assert "last week" not in done.stderr
    assert log.read_text().startswith("Traceback of last week")


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [("false", 1, "false ended with exit code 1 and wrote nothing"),
     ("true", 1, "true ended with exit code 0 and wrote nothing")],
)  # fmt: skip
def test_an_interpreter_that_says_nothing_is_named(program, code, words, tmp_path):
    done = relax_tui("demo", "--python", f"/bin/{program}", tmp_path=tmp_path)
    assert done.returncode == code
    assert words in done.stderr


def test_without_arguments_and_without_runs(tmp_path):
    done = relax_tui(tmp_path=tmp_path)
    assert done.returncode == 0
    assert "relax-tui demo" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("attach", "nothing"), 2, "no run 'nothing' is known"),
        (("show", "runs/tiny-f00d", "--rollout", "99"), 2, "--rollout 99"),
        (("show", "runs/tiny-f00d", "--sample", "99999"), 2, "--sample 99999"),
        (("tell", "runs/tiny-f00d", "explode"), 2, "no command 'explode'"),
        (("stop", "runs/tiny-f00d"), 6, "takes no commands"),
        (("demo", "--model", "no-such-model"), 2, "no-such-model"),
        (("run", "--python", "/no/python", "--", "--x"), 2, "--python"),
    ],
)
def test_errors_are_one_sentence(finished, arguments, code, words):
    done = relax_tui(*arguments, tmp_path=finished)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_training_flags_end_with_the_drivers_code_and_words(tmp_path):
    done = relax_tui("run", "--", "--no-such-flag", tmp_path=tmp_path)
    assert done.returncode == 2
    assert "no-such-flag" in done.stderr


def test_doctor(tmp_path):
    done = relax_tui("doctor", tmp_path=tmp_path)
    assert done.returncode == 0
    assert "textual" in done.stdout


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("relax_tui.cli", ("textual", "pyarrow", "pydantic", "aiohttp", *HEAVY)),
        ("relax_tui.app", ("pyarrow", "numpy", "pydantic", "aiohttp", *HEAVY)),
        ("relax_tui.sources.record", HEAVY),
        ("relax_tui.report", HEAVY),
    ],
)
def test_nothing_is_imported_too_early(module, unwanted):
    code = (
        f"import sys, {module}; "
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("story", "words"),
    [("paused", "the run goes on"), ("finished", "the run is finished"),
     ("lost", "the run is lost")],
)  # fmt: skip
def test_what_is_said_on_leaving_is_true(story, words, tmp_path):
    make_run(tmp_path / "a run", story).close()
    text = farewell(tmp_path / "a run")
    assert text.startswith(words)
    assert text.endswith(f"relax-tui attach '{tmp_path}/a run'")
