"""Copying out of a terminal that may sit behind tmux and SSH.

The text is written to a file too, unless the disk takes none, and the message says
what was tried: a terminal does not acknowledge a clipboard sequence, so success is
never claimed.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from relax.records.atomic import write_atomically

OSC52_BYTES = 74_994
TMUX_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What was done with a text.

    Attributes:
        kept: ``also in FILE``, or why no file holds it.
        way: What was tried beside the file, as a phrase.
        osc52: Whether the caller is to send it to the terminal as OSC 52.
    """

    kept: str
    way: str
    osc52: bool = False


def write_text(text: str, name: str, *, folder: Path) -> Path:
    """Writes a text under a name of its own.

    Args:
        text: What to write.
        name: What it is.
        folder: Where; made when missing, for us only.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    plain = "".join(char if char.isalnum() else "-" for char in name).strip("-")[:40]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = folder / f"{stamp}-{plain or 'text'}.txt"
    write_atomically(path, encoded(text + "\n"))
    return path


def encoded(text: str) -> bytes:
    """A text as UTF-8; lone surrogates, which UTF-8 cannot hold, as escapes."""
    return text.encode("utf-8", "backslashreplace")


def copy_text(text: str, name: str, *, folder: Path, tmux: bool) -> Copied:
    """Writes a text to a file and to tmux's buffer, or asks for OSC 52.

    Args:
        text: What to copy.
        name: What it is.
        folder: Where files go.
        tmux: Whether we run inside tmux.

    Returns:
        What was done.
    """
    try:
        kept = f"also in {write_text(text, name, folder=folder)}"
    except OSError as error:
        kept = f"in no file ({folder}: {error.strerror or error})"
    if tmux and _load_buffer(text):
        return Copied(kept=kept, way="tmux buffer (prefix ] pastes)")
    if len(encoded(text)) <= OSC52_BYTES:
        return Copied(kept=kept, way="clipboard asked for by OSC 52", osc52=True)
    return Copied(kept=kept, way="too long for the clipboard")


def _load_buffer(text: str) -> bool:
    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],
            input=encoded(text),
            capture_output=True,
            timeout=TMUX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
