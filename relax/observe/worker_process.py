"""What every process of a run does first: own log file, stacks on request, threads."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from relax.observe.stacks import answer_with_stacks

_PR_SET_NAME = 15


def log_path(run_dir: Path, name: str) -> Path:
    """Where a worker's own output goes."""
    return run_dir / "logs" / f"{name}.log"


def prepare_worker(run_dir: Path, name: str) -> int:
    """Points output at the worker's own log file and answers for its stacks.

    Descriptors 1 and 2 are redirected, so that what C++ libraries print is kept too,
    and a worker's own last lines can be told from everyone else's.

    Args:
        run_dir: The run folder.
        name: The worker's name, e.g. ``train-0``.

    Returns:
        The process's pid.
    """
    path = log_path(run_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    answer_with_stacks(run_dir, name)
    # The name that ps and top show: a person looks for "relax train-0", not for Ray's.
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"relax {name}"[:15].encode(), 0, 0, 0)
    return os.getpid()


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process of this host; None when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float | None:
    """Processor time that a process of this host has used; None when it is gone."""
    try:
        # The name of the process may hold blanks; it ends with the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def last_lines(path: Path, *, count: int = 20, most_bytes: int = 16_384) -> list[str]:
    """The last lines of a log file; empty when there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - most_bytes))
            content = stream.read()
    except OSError:
        return []
    lines = content.decode("utf-8", "backslashreplace").splitlines()
    return [line for line in lines if line.strip()][-count:]
