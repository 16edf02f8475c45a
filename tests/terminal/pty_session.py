"""A program on a pseudo-terminal: what it writes, what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]

ANSWERS = {  # what a plain terminal answers; everything else stays unanswered
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[6n": b"\x1b[1;1R",
}


def console_session(*words, home, size=(120, 40), **environment):
    """``relax-tui`` with some words, of a person whose home is a folder of the test."""
    return PtySession(
        [sys.executable, "-m", "relax_tui.cli", *map(str, words)],
        size=size,
        environment={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(home / "state"),
            **environment,
        },
    )


class PtySession:
    """Runs a command on a pty of its own and emulates the screen.

    Args:
        command: Program and arguments.
        size: Columns and rows.
        environment: Whole environment of the program.
    """

    def __init__(self, command, *, size=(120, 40), environment):
        self.master, slave = pty.openpty()
        columns, rows = size
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self, seconds):
        """Takes in what comes within a time; returns the bytes."""
        end = time.monotonic() + seconds
        got = b""
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], left)
            if not ready:
                break
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            got += data
            for query, answer in ANSWERS.items():
                if query in data:
                    os.write(self.master, answer)
            self.feed(data)
        return got

    def feed(self, data):
        """Takes bytes in that came from the program."""
        self.output += data
        # pyte knows neither the kitty protocol nor synchronised output.
        self.stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*[u$p]+", b"", data))

    def wait_for(self, text, seconds=30.0):
        """Reads until a text is on the screen; returns when it was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            if text in self.text:
                return time.monotonic()
        raise AssertionError(f"{text!r} did not appear:\n{self.text}")

    def settle(self, quiet=0.6, seconds=20.0):
        """Reads until nothing comes for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.read(quiet):
            pass

    @property
    def text(self):
        """The screen."""
        return "\n".join(self.screen.display)

    def press(self, keys):
        """Types."""
        os.write(self.master, keys.encode())

    def resize(self, columns, rows):
        """Changes the size of the terminal, as its window would."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self.screen.resize(rows, columns)

    def wait_end(self, seconds=10.0):
        """Reads until the program ended; its exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        self.read(0.1)
        return self.process.poll()

    def restored(self):
        """What a program must put back and did not; empty when all is well."""
        left = []
        for on, off, name in (
            (b"\x1b[?1049h", b"\x1b[?1049l", "alternate screen"),
            (b"\x1b[?25l", b"\x1b[?25h", "hidden cursor"),
            (b"\x1b[?2004h", b"\x1b[?2004l", "bracketed paste"),
            (b"\x1b[?1004h", b"\x1b[?1004l", "focus reports"),
        ):
            if self.output.rfind(on) > self.output.rfind(off):
                left.append(name)
        if termios.tcgetattr(self.slave)[:4] != self.before[:4]:
            left.append("line settings")
        return left

    def close(self):
        """Ends the program, if it still runs, and the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.master, self.slave):
            if descriptor >= 0:
                os.close(descriptor)
        self.master = self.slave = -1
