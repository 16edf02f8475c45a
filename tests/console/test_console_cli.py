"""The command line: errors in one sentence, exit codes, nothing heavy imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from screens import make_run

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "megatron", "sglang", "transformers")


def relax_tui(*arguments, tmp_path, **environment):
    return subprocess.run(
        [sys.executable, "-m", "relax_tui.cli", *arguments],
        capture_output=True,
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
    assert "finished" in relax_tui("ls", tmp_path=finished).stdout
    (run,) = json.loads(relax_tui("ls", "--json", tmp_path=finished).stdout)
    assert run["state"] == "finished"
    assert run["place"] == "3/200"


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
