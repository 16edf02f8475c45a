"""The console's settings file: keys that a person gives to functions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from screens import screen_text, showing

from relax.errors import ArgumentError
from relax_tui.config import ConsoleConfig, read_config
from relax_tui.keymap import BY_ID, remap
from relax_tui.screens.help import HelpScreen


@pytest.fixture
def settings(tmp_path):
    def write(text):
        path = tmp_path / "console.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def keys():
    yield remap
    remap({})


def test_without_a_file_nothing_is_set(tmp_path):
    assert read_config(tmp_path / "none.toml") == ConsoleConfig()


def test_keys_are_written_as_they_are_printed_or_named(settings):
    config = read_config(settings('[keys]\ndump = "+"\ntriage = ["Z", "ctrl+e"]\n'))
    assert config.keys == {"dump": ("plus_sign",), "triage": ("Z", "ctrl+e")}
    swapped = read_config(settings('[keys]\ndump = "r"\nreplay = "d"\n'))
    assert swapped.keys == {"dump": ("r",), "replay": ("d",)}


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("[kys]\n", "no setting 'kys'", "did you mean keys?"),
        ('[keys]\ndmp = "x"\n', "no function 'dmp'", "did you mean dump?"),
        ('[keys]\ndump = "pgup"\n', "no key 'pgup'", "did you mean pageup?"),
        ('[keys]\ndump = "r"\n', "r would be dump and replay", "give replay another"),
        ('[keys]\npause = "y"\n', "y answers dialogs", ""),
        ("[keys]\ndump = 3\n", "a key or a list of keys", "[keys]"),
        ("[keys\n", "is not TOML", "[keys]"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_near(settings, text, what, hint):
    with pytest.raises(ArgumentError) as caught:
        read_config(settings(text))
    assert what in caught.value.what
    assert "console.toml" in caught.value.what
    assert hint in caught.value.hint


async def test_a_key_that_was_given_works_and_is_shown(keys, snapshots):
    keys({"help": ("H",), "triage": ("plus_sign",)})
    async with showing(snapshots("finished")) as (app, pilot, _):
        assert "H help" in screen_text(app)
        await pilot.press("question_mark")
        assert not isinstance(app.screen, HelpScreen)
        await pilot.press("H")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert BY_ID["triage"].display == "+"
        await pilot.press("q", "plus_sign")
        await pilot.pause()
        assert "evidence" in screen_text(app)


@pytest.mark.terminal
def test_a_wrong_file_is_one_sentence_and_no_screen(tmp_path):
    folder = tmp_path / "config" / "relax"
    folder.mkdir(parents=True)
    (folder / "console.toml").write_text('[keys]\ndmp = "x"\n')
    master, slave = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "relax_tui.cli"],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", "HOME": str(tmp_path),
                 "XDG_CONFIG_HOME": str(tmp_path / "config")},
            check=False,
        )  # fmt: skip
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 2
    assert b"did you mean dump?" in done.stderr
    assert b"Traceback" not in done.stderr
