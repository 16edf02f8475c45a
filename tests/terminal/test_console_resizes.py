"""A terminal that changes its size all the time, and one that is very small."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from pty_session import console_session

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "console"))

from screens import make_run  # noqa: E402

pytestmark = pytest.mark.terminal

STORM = 100
SMALLEST, LARGEST = (3, 2), (300, 100)


def test_a_storm_of_resizes_leaves_the_screen_as_it_was(tmp_path):
    make_run(tmp_path / "run", "finished").close()
    session = console_session("attach", tmp_path / "run", home=tmp_path, size=(80, 24))
    try:
        session.wait_for("worst first")
        session.settle()
        before = session.text
        chosen = random.Random(8)
        for number in range(STORM):
            columns = chosen.randint(SMALLEST[0], LARGEST[0])
            rows = chosen.randint(SMALLEST[1], LARGEST[1])
            session.resize(*(SMALLEST, LARGEST, (columns, rows))[number % 3])
            if number % 10 == 0:
                session.press("jtq"[number // 10 % 3])
            session.read(0.02)
        session.resize(80, 24)
        session.wait_for("worst first")
        session.press("g")
        session.settle()
        assert session.process.poll() is None
        assert [row.rstrip() for row in _steady(session.text)] == [
            row.rstrip() for row in _steady(before)
        ]
        session.press("q")
        assert session.wait_end() == 0
        assert not session.restored()
    finally:
        session.close()


def _steady(text: str) -> list[str]:
    """The screen without its last message, which tells of the keys."""
    return text.splitlines()[:-2]
