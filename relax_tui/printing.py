"""What the commands print: nothing that a terminal would obey, no traceback.

Names of folders, hosts and runs, and the words of a driver, come from outside like a
response does; a full disk behind standard output is a sentence and an exit code.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from relax.errors import RelaxError
from relax_tui.text import visible, visible_lines

BROKEN_PIPE = 128 + signal.SIGPIPE
NOT_WRITTEN = 74
"""Exit code when the output could not be written (``EX_IOERR`` of sysexits.h)."""
UNCUT = 1_000_000
"""Cells of a row of a file or a pipe: nothing is cut."""


def say(text: str, *, to: TextIO | None = None) -> None:
    """Prints lines after making everything visible that a terminal would obey.

    Args:
        text: One or more lines.
        to: The stream; standard output when left out.
    """
    stream = sys.stdout if to is None else to
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    plain = not encoding.startswith("utf")
    for row in visible_lines(text, ascii_only=plain):
        print(row, file=stream)


def quoted(text: str) -> str:
    """A text as one word of a shell, also when it holds what a terminal would obey."""
    if text == visible(text):
        return shlex.quote(text)
    # $'…' is the one form in which a control character can be pasted.
    escaped = text.encode("utf-8", "surrogateescape")
    return "$'" + "".join(map(_shell_form, escaped)) + "'"


def _shell_form(byte: int) -> str:
    char = chr(byte)
    if char in "'\\":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\x{byte:02x}"


def guarded(work: Callable[[], object]) -> None:
    """Runs a command so that whatever goes wrong ends in one sentence.

    Args:
        work: The command line's entry point; may raise `SystemExit`.
    """
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        # A locale that lacks a character must not end a report half way.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except RelaxError as error:
        _end(str(error), error.exit_code)
    except BrokenPipeError:
        # `relax-tui show | head`: the reader has seen enough.
        _give_up_output()
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        _give_up_output()
        place = f"{error.filename}: " if error.filename else ""
        _end(f"{place}{error.strerror or error}", NOT_WRITTEN)


def _open_what_is_closed() -> None:
    """Standard streams that the shell closed (``<&-``) are None in Python."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - as long as the program
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        _end("standard output is closed", NOT_WRITTEN)


def _end(words: str, code: int) -> None:
    say(f"relax-tui: {words}", to=sys.stderr)
    sys.exit(code)


def _give_up_output() -> None:
    """Python flushes standard output once more at its end, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
