"""How a lost run is started again: the exact words, and what will follow."""

from __future__ import annotations

import json
import shlex

import pytest
from screens import screen_text, showing, snapshot_of

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


def test_it_says_whether_the_run_goes_on_or_begins_anew(tmp_path):
    save = tmp_path / "saved"

    def effect(**arguments):
        return again_of(tmp_path, started(**arguments), rollout_id=7, wall=0.0).effect

    assert "begins anew" in effect()
    assert "without --save" in effect()
    assert f"no checkpoint is in {save}" in effect(save=(str(save), "flag"))
    # What lacks its last file was being written when the run was lost.
    (save / "rollout_000005").mkdir(parents=True)
    assert "begins anew" in effect(save=(str(save), "flag"))
    for number in (1, 3):
        folder = save / f"rollout_{number:06d}"
        folder.mkdir()
        (folder / "relax_checkpoint.json").write_text(json.dumps({"version": 1}))
    text = effect(save=(str(save), "flag"))
    assert "goes on from the checkpoint after rollout 3" in text
    assert "4 after it are done again" in text


def test_a_secret_that_was_left_out_is_said(tmp_path):
    run = started(wandb_key=("<redacted>", "flag"))
    again = again_of(tmp_path, run, rollout_id=0, wall=0.0)
    assert "put the secrets in the place of <redacted>" in again.effect


async def test_the_banner_shows_it_and_y_copies_it_whole(tmp_path):
    snapshot = snapshot_of(tmp_path / "run", "lost")
    assert snapshot.again is not None
    async with showing(snapshot, (80, 24)) as (app, pilot, _):
        text = " ".join(screen_text(app).split())
        assert "started again it begins anew at its first rollout" in text
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
