"""Which checkpoint a run goes on from, decided from files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax.arguments import parse_arguments
from relax.arguments.arguments import replaced
from relax.backends.checkpoint_meta import (
    CheckpointMeta,
    RunProgress,
    checkpoint_path,
    checkpoints_in,
    read_meta,
    write_meta,
)
from relax.control.run_folder import RunInfo, write_run_info
from relax.controller.resume import make_room, resumed
from relax.controller.runlog import open_run_log
from relax.errors import ArgumentError

DEMO = Path(__file__).parents[3] / "examples" / "tiny_arith" / "demo.yaml"


@pytest.fixture
def arguments(tmp_path):
    own = parse_arguments(["--config", str(DEMO)])
    (tmp_path / "run").mkdir()
    info = RunInfo(
        run_id="r-1",
        name="demo",
        attempt=1,
        host="here",
        boot_id="",
        pid=1,
        process_start=1,
        socket="",
        interpreter="",
        started=0.0,
    )
    write_run_info(tmp_path / "run", info)
    return replaced(
        own, run_dir=tmp_path / "run", save=tmp_path / "saved", save_interval=2
    )


def checkpoint(folder, *, rollout_id, run_id="r-1"):
    """A checkpoint of one small file."""
    path = checkpoint_path(folder, rollout_id=rollout_id)
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    progress = RunProgress(
        run_id=run_id, attempt=1, rollout_id=rollout_id, cursor={"position": 8}
    )
    meta = CheckpointMeta(
        weights_version=rollout_id + 1,
        layout={"tensor": 1},
        distributed_optimizer=False,
        passes=4,
        progress=progress,
    )
    write_meta(path, meta)
    assert read_meta(path) == meta
    return path


def test_without_any_checkpoint_a_run_begins_at_the_beginning(arguments):
    found, point = resumed(arguments)
    assert point is None
    assert found == arguments


def test_the_newest_checkpoint_of_the_same_run_is_taken(arguments, tmp_path):
    for rollout_id in (1, 3, 11):
        newest = checkpoint(tmp_path / "saved", rollout_id=rollout_id)
    found, point = resumed(arguments)
    assert point.path == found.checkpoint.load == newest
    assert point.progress.cursor == {"position": 8}
    assert found.data.start_rollout_id == 12
    assert not found.was_given("load")


def test_one_that_is_not_whole_is_never_taken(arguments, tmp_path):
    whole = checkpoint(tmp_path / "saved", rollout_id=1)
    cut = checkpoint(tmp_path / "saved", rollout_id=3)
    (cut / "model.safetensors").write_bytes(b"wei")
    gone = checkpoint(tmp_path / "saved", rollout_id=5)
    (gone / "model.safetensors").unlink()
    torn = checkpoint(tmp_path / "saved", rollout_id=7)
    (torn / "relax_checkpoint.json").write_text('{"vers')
    (tmp_path / "saved" / ".rollout_000009.tmp").mkdir()
    (tmp_path / "saved" / "rollout_000011").mkdir()
    assert checkpoints_in(tmp_path / "saved") == {1: whole}
    found, point = resumed(arguments)
    assert point.path == whole
    log = open_run_log(tmp_path / "run", echo=False)
    make_room(found, log)
    for handler in log.handlers[:]:
        log.removeHandler(handler)
        handler.close()
    names = sorted(path.name for path in (tmp_path / "saved").glob("rollout_*"))
    assert names == ["rollout_000001"]
    assert (tmp_path / "saved" / ".rollout_000003.incomplete").is_dir()


def test_load_names_a_checkpoint_or_a_folder_of_them(arguments, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    older = checkpoint(elsewhere, rollout_id=1, run_id="another")
    newer = checkpoint(elsewhere, rollout_id=3, run_id="another")
    for load, path, start in ((older, older, 2), (elsewhere, newer, 4)):
        found, point = resumed(replaced(arguments, load=load))
        assert point.path == path
        assert found.data.start_rollout_id == start
    asked = replaced(arguments, load=elsewhere, start_rollout_id=2)
    assert resumed(asked)[1].path == older
    with pytest.raises(ArgumentError, match="no checkpoint to start rollout 3 from"):
        resumed(replaced(arguments, load=elsewhere, start_rollout_id=3))


def test_its_own_newer_checkpoint_wins_over_the_one_it_was_started_from(
    arguments, tmp_path
):
    begun_from = checkpoint(tmp_path / "elsewhere", rollout_id=1, run_id="another")
    own = checkpoint(tmp_path / "saved", rollout_id=3)
    assert resumed(replaced(arguments, load=begun_from))[1].path == own


def test_load_and_save_may_name_one_folder_from_the_first_start_on(arguments, tmp_path):
    both = replaced(arguments, load=tmp_path / "saved")
    found, point = resumed(both)
    assert (point, found.checkpoint.load) == (None, None)
    newest = checkpoint(tmp_path / "saved", rollout_id=1)
    assert resumed(both)[1].path == newest


def test_a_model_is_loaded_as_weights_and_nothing_is_refused(arguments):
    model = DEMO.parent / "model"
    found, point = resumed(replaced(arguments, load=model))
    assert (point, found.checkpoint.load) == (None, model)
    with pytest.raises(ArgumentError, match="no complete checkpoint and no model"):
        resumed(replaced(arguments, load=DEMO.parent / "nowhere"))


def test_checkpoints_of_another_run_are_in_the_way(arguments, tmp_path):
    checkpoint(tmp_path / "saved", rollout_id=3, run_id="another")
    with pytest.raises(ArgumentError, match="checkpoints of rollout 3 and later"):
        resumed(arguments)
