"""`relax-tui shot`: a screen as text and as SVG, without a terminal."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from screens import make_run
from test_console_cli import relax_tui

from relax.errors import ArgumentError
from relax_tui.shot import size_of


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shot") / "run"
    make_run(folder, "paused").close()
    return folder


def test_text_of_the_screen_that_keys_lead_to(run_dir, tmp_path):
    shown = relax_tui(
        "shot", str(run_dir), "--keys", "t", "--size", "80x24", tmp_path=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    rows = shown.stdout.splitlines()
    assert len(rows) == 24
    assert max(map(len, rows)) <= 80
    assert "evidence" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_svg_in_a_file_and_no_command_to_the_run(run_dir, tmp_path):
    events = sorted((run_dir / "events").iterdir())
    before = [file.read_bytes() for file in events]
    out = tmp_path / "screen.svg"
    done = relax_tui(
        "shot", str(run_dir), "--keys", "c,y,c", "--out", str(out), tmp_path=tmp_path
    )
    assert done.returncode == 0, done.stderr
    words = "".join(ET.fromstring(out.read_text()).itertext())
    assert "refused" in words.replace("\xa0", " ")  # "c" is the last key
    assert [file.read_bytes() for file in events] == before
    assert [path.name for path in tmp_path.glob("*screen*")] == ["screen.svg"]


def test_ascii_and_what_is_refused(run_dir, tmp_path):
    plain = relax_tui(
        "--ascii", "shot", str(run_dir), "--size", "60x15", tmp_path=tmp_path
    )
    assert plain.stdout.isascii()
    wrong = relax_tui(
        "shot", str(run_dir), "--out", str(tmp_path / "x.png"), tmp_path=tmp_path
    )
    assert wrong.returncode == 2
    assert "neither .svg nor .txt" in wrong.stderr
    nothing = relax_tui("shot", str(tmp_path / "none"), tmp_path=tmp_path)
    assert nothing.returncode == 2
    assert not list(Path(tmp_path).glob("x*"))


@pytest.mark.parametrize("words", ["80", "80x", "x24", "3x2", "9999x40", "-1x5"])
def test_sizes_that_nothing_is_drawn_in(words):
    with pytest.raises(ArgumentError, match="no size"):
        size_of(words)
    assert size_of("80X24") == (80, 24)
