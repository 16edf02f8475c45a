"""What the terminal can do, and keeping it clean.

Three rules from measurements over SSH and tmux: a terminal that cannot be drawn on gets
the headless report instead; nothing but the driver writes to the tty while the console
runs (raw writes of C libraries would land on the screen); SIGHUP and SIGTERM go through
the event loop, because the default ends the process with the screen left in its
alternate state.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relax_tui.theme import ASCII, UNICODE, Colours, Look

if TYPE_CHECKING:
    import asyncio

_BASIC_TERMS = ("linux", "vt", "screen.linux", "cons", "ansi")
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What the terminal can do.

    Attributes:
        headless: Why no console can be drawn, as one phrase; '' when it can.
        look: Colours and glyphs.
        tmux: Whether we run inside tmux.
        pager: ``$PAGER``, else ``less``.
    """

    headless: str
    look: Look
    tmux: bool
    pager: str


def detect(
    environment: Mapping[str, str],
    *,
    is_tty: bool,
    ascii_only: bool = False,
    encoding: str = "utf-8",
) -> Capabilities:
    """Judges the terminal.

    Args:
        environment: `relax.arguments.environment.terminal_environment`.
        is_tty: Whether both input and output are a terminal.
        ascii_only: Asked for by the person.
        encoding: Encoding of the locale.

    Returns:
        The capabilities.
    """
    term = environment.get("TERM", "")
    headless = ""
    if not is_tty:
        headless = "input or output is not a terminal"
    elif term in ("", "dumb", "unknown"):
        headless = f"TERM={term or '(unset)'} cannot be drawn on"
    plain = ascii_only or encoding.lower().replace("-", "") not in ("utf8", "utf8sig")
    return Capabilities(
        headless=headless,
        look=Look(colours=_colours(environment), glyphs=ASCII if plain else UNICODE),
        tmux="TMUX" in environment,
        pager=environment.get("PAGER", "") or "less",
    )


def _colours(environment: Mapping[str, str]) -> Colours:
    # https://no-color.org: set and not empty, whatever its value.
    if environment.get("NO_COLOR", ""):
        return Colours.NONE
    if environment.get("COLORTERM", "") in ("truecolor", "24bit"):
        return Colours.RICH
    term = environment.get("TERM", "")
    if "256color" in term or "direct" in term or term in ("xterm-kitty", "alacritty"):
        return Colours.RICH
    if term.startswith(_BASIC_TERMS) or term in ("screen", "xterm", "tmux", "rxvt"):
        return Colours.BASIC
    return Colours.RICH if "color" in term else Colours.BASIC


def is_interactive() -> bool:
    """Whether a person sits at both ends: standard input and output are one tty."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def tty_kept_clean(log_file: Path) -> Iterator[None]:
    """Gives the driver its own descriptor of the tty and points 1 and 2 at a log.

    Args:
        log_file: Where stray output of libraries goes; made when missing, and done
            without where it cannot be made.
    """
    log = _open_log(log_file)
    saved = [os.dup(1), os.dup(2)]
    # Textual draws on sys.__stderr__ and asks sys.__stdout__ for the size.
    originals = (sys.__stdout__, sys.__stderr__)
    tty = os.fdopen(os.dup(saved[0]), "w", encoding="utf-8", errors="replace")
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        _set_streams(tty, tty)
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        _set_streams(*originals)
        for descriptor in (log, *saved):
            os.close(descriptor)
        _close_quietly(tty)


def _open_log(log_file: Path) -> int:
    """A descriptor of the log; of nothing where there is no room for one.

    A home that is full or read-only is when a person has to look at the run.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(log_file, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _set_streams(out: object, err: object) -> None:
    sys.__stdout__ = out  # type: ignore[misc, assignment]
    sys.__stderr__ = err  # type: ignore[misc, assignment]


def _close_quietly(stream: object) -> None:
    try:
        stream.close()  # type: ignore[attr-defined]
    except OSError:
        # The terminal is gone: what was still buffered has nowhere to go.
        return


def end_on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], object]) -> None:
    """Lets SIGHUP and SIGTERM end the console through its event loop.

    Also under ``nohup``, where SIGHUP would be ignored and an orphan would stay.
    """
    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, end)


def terminal_is_gone(descriptor: int) -> bool:
    """Whether the terminal behind a descriptor was closed (its other end hung up)."""
    poll = select.poll()
    try:
        poll.register(descriptor, 0)
        events = poll.poll(0)
    except OSError:
        return True
    return any(
        mask & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, mask in events
    )
