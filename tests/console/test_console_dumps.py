"""``relax-tui dumps``, as a process runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from relax.dump.manifest import WeightsNote
from relax.dump.write import RunFacts, StepToDump, dump_step
from relax.errors import DumpError, DumpMissing
from relax_tui.cli import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    step = StepToDump(
        rollout_id=37,
        weights=WeightsNote(version=36, fingerprint="f00d"),
        samples=[{"index": 0, "tokens": [1, 2, 3]}],
        ranks={0: {"rewards": [1.0]}},
    )
    facts = RunFacts(
        run_id="tiny-1",
        attempt=1,
        arguments={"lr": {"value": 1e-6, "origin": "flag"}},
        world_size=1,
    )
    dump_step(tmp_path, step, facts=facts)
    return tmp_path


def dumps(*words: object) -> Result:
    return CliRunner().invoke(app, ["dumps", *map(str, words)])


def test_ls_has_a_row_a_dump(folder):
    done = dumps("ls", folder)
    first, second = done.stdout.splitlines()
    assert "37" in first
    assert "1 sample" in first
    assert "tiny-1" in first
    assert "1 of 1 ranks" in second
    document = json.loads(dumps("ls", folder, "--json").stdout)
    assert [row["kind"] for row in document] == ["rollout", "train"]


def test_ls_of_nothing_says_so(tmp_path):
    assert "no dump in" in dumps("ls", tmp_path).stdout
    assert isinstance(dumps("ls", tmp_path / "x").exception, DumpMissing)


def test_show_says_what_ran_and_how_to_run_it_again(folder):
    done = dumps("show", folder)
    assert "tiny-1, attempt 1, rollout 37" in done.stdout
    assert "v36 f00d (not kept)" in done.stdout
    assert "lr=1e-06" in done.stdout
    assert "--load-debug-rollout-data" in done.stdout
    assert done.stdout.count("tiny-1, attempt") == 1
    document = json.loads(dumps("show", folder, "--json").stdout)
    assert document[0]["says"]["weights"]["version"] == 36


def test_verify_ends_with_3_when_a_file_was_changed(folder):
    done = dumps("verify", folder)
    assert done.exit_code == 0
    assert done.stdout.count("whole, by its manifest") == 2
    os.truncate(folder / "rollout_data" / "37.pt", 100)
    done = dumps("verify", folder)
    assert done.exit_code == DumpError.exit_code == 3
    assert "DAMAGED" in done.stdout
    document = json.loads(dumps("verify", folder, "--json").stdout)
    assert "truncated" in document[0]["problems"][0]


def test_a_hostile_manifest_does_not_reach_the_terminal(folder):
    path = folder / "rollout_data" / "37.manifest.json"
    document = json.loads(path.read_text())
    document["run_id"] = "x\x1b]0;owned\x07"
    path.write_text(json.dumps(document))
    assert "\x1b" not in dumps("ls", folder).stdout
    assert "\x1b" not in dumps("show", folder).stdout


def test_delete_asks_and_takes_all_that_the_manifest_names(folder):
    refused = CliRunner().invoke(app, ["dumps", "delete", str(folder)], input="n\n")
    assert refused.exit_code == 1
    assert "delete 1 dump" in refused.stdout
    assert len(json.loads(dumps("ls", folder, "--json").stdout)) == 2
    done = dumps("delete", folder, "--yes")
    assert done.exit_code == 0
    assert "deleted 2 files" in done.stdout
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_delete_of_one_file_leaves_what_lies_elsewhere(folder):
    (dump,) = folder.rglob("37.pt")
    done = dumps("delete", dump, "--yes")
    assert done.exit_code == DumpError.exit_code
    assert "lies outside of the dumps' folder, and stays" in done.stdout
    assert [path.name for path in folder.rglob("*.pt")] == ["37_0.pt"]
