"""No text from outside reaches the terminal as anything but text.

By hand: ``python tests/terminal/test_hostile_text.py STRINGS SEED``.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import unicodedata
from pathlib import Path

import pytest
from pty_session import PtySession

CONSOLE = Path(__file__).with_name("hostile_console.py")
# What Textual's driver itself sends: modes, colours, places, questions, the clipboard.
OURS = re.compile(
    rb"\x1b\[[0-9;:]*[mHJKABCD]"
    rb"|\x1b\[\?(?:7|25|1000|1003|1006|1015|1004|1049|2004|2026|2048)[hl]"
    rb"|\x1b\[\?(?:2026|2048)\$p"
    rb"|\x1b\[[<>=]?[0-9;]*u"
    rb"|\x1b\[(?:6n|c)"
    rb"|\x1b\]22;default\x07"
    rb"|\x1b\]52;c;[A-Za-z0-9+/=]*(?:\x07|\x1b\\)"
)
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


def foreign(output: bytes) -> list[str]:
    """Everything on the wire that is neither printable nor the console's own."""
    found = [repr(output[m.start() : m.start() + 24]) for m in _foreign_escapes(output)]
    rest = OURS.sub(b"", output).replace(b"\r\n", b"").replace(b"\n", b"")
    text = rest.replace(b"\x1b", b"").decode("utf-8", "backslashreplace")
    odd = {char for char in text if unicodedata.category(char) in UNSAFE}
    return found + sorted(map(repr, odd))


def _foreign_escapes(output: bytes) -> list[re.Match[bytes]]:
    return list(re.finditer(rb"\x1b", OURS.sub(_blank, output)))


def _blank(match: re.Match[bytes]) -> bytes:
    return b" " * len(match.group())


def walk(strings: int, seed: int, size: tuple[int, int], folder: Path) -> PtySession:
    """The console on a pty over so many strings, until it ends by itself."""
    session = PtySession(
        [sys.executable, str(CONSOLE), str(folder), str(strings), str(seed)],
        size=size,
        environment={
            **os.environ,
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": str(folder),
        },
    )
    try:
        session.wait_end(seconds=600.0)
    finally:
        # Also when this is interrupted: what hangs must not live on.
        session.close()
    return session


@pytest.mark.terminal
@pytest.mark.parametrize("size", [(80, 24), (40, 10)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_nothing_hostile_reaches_the_terminal(size, tmp_path):
    session = walk(900, seed=size[0], size=size, folder=tmp_path)
    assert session.process.returncode == 0, session.screen.display
    assert b" strings shown" in session.output
    assert foreign(session.output) == []


@pytest.mark.parametrize(
    "text",
    ["\x1b]0;x\x07", "\x1b]8;;u\x1b\\", "\x9b31m", "\u202e", "\x07", "\x1bc", "\x00"],
)
def test_the_reader_of_the_wire_finds_what_does_not_belong(text):
    clean = b"\x1b[1;1H\x1b[31mplain\x1b[0m \x1b[?25l\r\n"
    assert foreign(clean) == []
    assert foreign(clean + text.encode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        ended = walk(int(sys.argv[1]), int(sys.argv[2]), (80, 24), Path(scratch))
    sys.stdout.write(ended.output[-3000:].decode("utf-8", "replace"))
    sys.stdout.write(f"\n{ended.process.returncode} {foreign(ended.output)}\n")
