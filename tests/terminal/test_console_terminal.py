"""The console on a real terminal: bytes, signals, what it leaves behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from pty_session import console_session

from relax_tui.terminal import detect
from relax_tui.theme import ASCII, ROLES, Colours, style

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "console"))

from screens import make_run  # noqa: E402

pytestmark = pytest.mark.terminal


@pytest.fixture
def console(tmp_path):
    sessions = []

    def start(story, *, size=(120, 40), hostile="", **environment):
        run = make_run(tmp_path / "run", story)
        if hostile:
            (tmp_path / "run" / "logs" / "engine.log").write_text(hostile)
        run.close()
        session = console_session(
            "attach", tmp_path / "run", home=tmp_path, size=size, **environment
        )
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        session.close()


@pytest.mark.parametrize("story", ["paused", "finished", "lost"])
def test_an_idle_screen_sends_nothing(console, story):
    session = console(story)
    session.wait_for("worst first")
    session.settle()
    assert session.read(8.0) == b""


def test_a_running_screen_without_news_sends_little(console):
    session = console("generating")
    session.wait_for("7/16")
    session.settle(seconds=3)
    assert len(session.read(6.0)) / 6.0 <= 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(console, number):
    session = console("paused")
    session.wait_for("worst first")
    session.process.send_signal(number)
    assert session.wait_end() == 0
    assert session.restored() == []


@pytest.mark.parametrize("keys", ["q", "\x03", "\x11"])
def test_leaving_restores_the_terminal(console, keys):
    session = console("paused")
    session.wait_for("worst first")
    session.press(keys)
    assert session.wait_end() == 0
    assert session.restored() == []


def test_a_closed_terminal_leaves_no_orphan(console):
    session = console("paused")
    session.wait_for("worst first")
    session.process.send_signal(0)
    os.close(session.master)
    os.close(session.slave)
    session.master = session.slave = -1
    deadline = time.monotonic() + 10
    while session.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert session.process.poll() is not None


def test_nothing_foreign_is_on_the_wire(console):
    evil = "\x1b]52;c;ZXZpbA==\x07 \x1b]0;owned\x07 \x9b31m [bold]x[/bold] 你好\n" * 3
    session = console("paused", hostile=evil)
    session.wait_for("worst first")
    session.press("L")
    session.wait_for("engine.log")
    session.settle()
    assert b"\x1b]52" not in session.output
    assert b"\x1b]0;owned" not in session.output
    assert b"\xc2\x9b" not in session.output
    assert "[bold]x[/bold]" in session.text


def test_the_mouse_stays_the_terminals(console):
    session = console("paused")
    session.wait_for("worst first")
    session.settle()
    assert not any(mode in session.output for mode in (b"?1000h", b"?1002h", b"?1003h"))


def test_no_colour_and_ascii(console):
    session = console("paused", NO_COLOR="1")
    session.wait_for("worst first")
    session.settle()
    assert b"38;5;" not in session.output
    assert b"48;5;" not in session.output


def test_the_pager_opens_and_comes_back(console):
    session = console("paused", PAGER="cat")
    session.wait_for("worst first")
    session.press("o")
    session.settle()
    session.press("j")
    session.wait_for("2 of 16")


def test_a_home_that_takes_no_file_keeps_nobody_out(console):
    session = console("paused", XDG_STATE_HOME="/dev/null/state")
    session.wait_for("worst first")
    session.press("w")
    session.wait_for("not written to /dev/null/state/relax/copied: Not a directory")
    session.press("y")
    session.wait_for("in no file (/dev/null/state/relax/copied: Not a directory)")
    assert b"\x1b]52;" in session.output
    session.press("qq")
    assert session.wait_end() == 0
    assert session.restored() == []


def test_small_and_growing(console):
    session = console("paused", size=(20, 5))
    session.wait_for("tiny-arith")
    session.press("q")
    assert session.wait_end() == 0


def test_what_a_terminal_can_do():
    def colours(**environment):
        return detect(environment, is_tty=True).look.colours

    assert colours(TERM="tmux-256color") is Colours.RICH
    assert colours(TERM="xterm", COLORTERM="truecolor") is Colours.RICH
    assert colours(TERM="linux") is Colours.BASIC
    assert colours(TERM="screen") is Colours.BASIC
    assert colours(TERM="xterm-256color", NO_COLOR="1") is Colours.NONE
    assert colours(TERM="xterm-256color", NO_COLOR="") is Colours.RICH
    assert detect({"TERM": "dumb"}, is_tty=True).headless
    assert detect({}, is_tty=True).headless
    assert detect({"TERM": "xterm"}, is_tty=False).headless
    assert not detect({"TERM": "xterm"}, is_tty=True).headless
    latin = detect({"TERM": "xterm"}, is_tty=True, encoding="ISO-8859-1")
    assert latin.look.glyphs is ASCII


@pytest.mark.parametrize("colours", list(Colours))
def test_what_is_wrong_never_looks_like_what_is_right(colours):
    looks = {role: style(role, colours) for role in ROLES}
    assert looks["bad"] != looks["good"]
    assert looks["alarm"] != looks["notice"] or colours is Colours.NONE
    assert looks["selected"] != looks[""]
    if colours is not Colours.NONE:
        meanings = ("bad", "warn", "good", "info", "running", "dim")
        assert len({looks[role].color for role in meanings}) == len(meanings)
