import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import refusal_table
from refusal_table import ROWS, Row, command_line, complaint

from relax.arguments import parse_arguments
from relax.arguments.environment import child_environment, child_python_path
from relax.arguments.validate import RULES
from relax.errors import ArgumentError


def test_the_small_run_itself_stands(tmp_path):
    parse_arguments(command_line(Row("", ()), tmp_path))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.given or str(row.without))
def test_refused_with_flag_value_and_fix(row, tmp_path):
    assert complaint(row, tmp_path) == ""


def test_refused_without_assertions_too():
    finished = subprocess.run(
        [sys.executable, "-O", refusal_table.__file__],
        env=child_environment({"PYTHONPATH": child_python_path()}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.strip() == f"{len(ROWS)} rows, 0 complaints"


def test_every_rule_has_a_row(tmp_path):
    broken: set[str] = set()
    for row in ROWS:
        with pytest.raises(ArgumentError) as caught:
            parse_arguments(command_line(row, tmp_path), has_gpu=row.has_gpu)
        broken |= {frame.name for frame in traceback.extract_tb(caught.tb)}
    assert {rule.__name__ for rule in RULES} - broken == set()


def test_exit_code_is_2():
    with pytest.raises(ArgumentError) as caught:
        parse_arguments(["--nothing"])
    assert caught.value.exit_code == 2
    assert caught.value.code == "argument"


def test_a_file_is_named_with_its_line(tmp_path: Path, words):
    file = tmp_path / "run.yaml"
    file.write_text("seed: 7\n\nkl_coef: much\n")
    with pytest.raises(ArgumentError, match=rf"{file}:3: --kl-coef much"):
        parse_arguments([*words(), "--config", str(file)])


def test_a_rule_names_the_file_that_broke_it(tmp_path: Path, words):
    file = tmp_path / "run.yaml"
    file.write_text("advantage-estimator: sapo\n")
    with pytest.raises(ArgumentError, match=rf"{file}:1: --advantage-estimator sapo"):
        parse_arguments([*words(), "--config", str(file)])
