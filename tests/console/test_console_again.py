"""How a lost run is started again: the exact words, and what will follow."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from screens import screen_text, showing, snapshot_of

from relax.backends.checkpoint_meta import (
    CheckpointMeta,
    RunProgress,
    checkpoint_path,
    write_meta,
)
from relax.events.types import Mode, RunStarted
from relax_tui.printing import quoted
from relax_tui.sources.again import again_of


def started(**arguments):
    """A run's start, with values and origins as the engine records them."""
    given = {
        name: {"value": value, "origin": origin}
        for name, (value, origin) in arguments.items()
    }
    return RunStarted(
        run_id="r", name="n", mode=Mode.FULL, num_rollout=9, arguments=given
    )


def words(again):
    return shlex.split(again.command)


def test_flags_are_given_again_and_defaults_are_not(tmp_path):
    run_dir = tmp_path / "it's a run"
    run = started(
        num_rollout=(9, "flag"),
        kl_coef=(-0.5, "flag"),
        use_kl_loss=(False, "flag"),
        pause_at=(["grad_norm > 10", "3:train"], "flag"),
        eps_clip=(0.2, "default"),
        seed=(3, "derived from rollout_seed"),
        load=(None, "flag"),
        run_dir=(str(run_dir), "flag"),
        walk=(True, "flag"),
    )
    again = again_of(run_dir, run, rollout_id=4, wall=0.0)
    assert words(again) == [
        *("relax-tui", "run", "--run-dir", str(run_dir), "--"),
        *("--num-rollout=9", "--kl-coef=-0.5", "--use-kl-loss=false"),
        *("--pause-at", "grad_norm > 10", "3:train"),
    ]


def test_a_settings_file_is_named_as_long_as_it_is_the_same(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("lr: 0.1\n")
    wall = file.stat().st_mtime
    run = started(lr=(0.1, f"{file}:1"), num_rollout=(9, "flag"))
    same = again_of(tmp_path / "run", run, rollout_id=4, wall=wall + 1)
    assert words(same)[5:] == ["--config", str(file), "--num-rollout=9"]
    changed = again_of(tmp_path / "run", run, rollout_id=4, wall=wall - 1)
    assert words(changed)[5:] == ["--lr=0.1", "--num-rollout=9"]
    file.unlink()
    gone = again_of(tmp_path / "run", run, rollout_id=4, wall=wall + 1)
    assert words(gone) == words(changed)


def checkpoint(save, rollout_id, *, run_id="r", whole=True):
    """A folder as the engine writes it."""
    progress = RunProgress(run_id=run_id, attempt=1, rollout_id=rollout_id, cursor=None)
    folder = checkpoint_path(save, rollout_id=rollout_id)
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    meta = CheckpointMeta(
        weights_version=rollout_id + 1,
        layout={},
        distributed_optimizer=False,
        progress=progress,
    )
    write_meta(folder, meta)
    if not whole:
        (folder / "model").write_text("wei")


def test_it_says_whether_the_run_goes_on_or_begins_anew(tmp_path):
    save = tmp_path / "saved"

    def again(**arguments):
        return again_of(tmp_path, started(**arguments), rollout_id=7, wall=0.0)

    assert "begins anew at rollout 0 (it was run without --save)" in again().effect
    saved = {"save": (str(save), "flag"), "start_rollout_id": (1, "flag")}
    assert f"no checkpoint of it is in {save}" in again(**saved).effect
    # One that was being written, and one of another run, are none of this run's.
    checkpoint(save, 5, whole=False)
    checkpoint(save, 6, run_id="another")
    assert "begins anew" in again(**saved).effect
    assert "--start-rollout-id=1" in again(**saved).command
    checkpoint(save, 1)
    checkpoint(save, 3)
    found = again(**saved)
    assert "goes on from the checkpoint after rollout 3" in found.effect
    assert "4 after it are done again" in found.effect
    assert "--start-rollout-id" not in found.command


def test_a_run_that_was_resumed_itself_is_resumed_again(tmp_path):
    run = replace(started(), resumed_from="/saved/rollout_000002", start_rollout_id=3)
    again = again_of(tmp_path, run, rollout_id=7, wall=0.0)
    assert words(again)[-1] == "--load=/saved/rollout_000002"
    assert "goes on from /saved/rollout_000002 once more" in again.effect


def test_a_secret_that_was_left_out_is_said(tmp_path):
    run = started(wandb_key=("<redacted>", "flag"))
    again = again_of(tmp_path, run, rollout_id=0, wall=0.0)
    assert "put the secrets in the place of <redacted>" in again.effect


async def test_the_banner_shows_it_and_y_copies_it_whole(tmp_path):
    snapshot = snapshot_of(tmp_path / "run", "lost")
    assert snapshot.again is not None
    async with showing(snapshot, (80, 24)) as (app, pilot, _):
        text = " ".join(screen_text(app).split())
        assert "started again it begins anew at rollout 0" in text
        assert "relax-tui run --run-dir" in text
        assert "FLAGS" not in text
        await pilot.press("Y")
        assert "command that starts it again" in screen_text(app)


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "quo'te", "semi;colon $HOME", "esc\x1b]0;x\x07", "你好"],
)
def test_what_is_pasted_is_one_word_again(name, tmp_path):
    import subprocess

    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(name)}"], capture_output=True, check=True
    )
    assert done.stdout.decode() == name
    assert quoted(name).isprintable()
