"""Cleans up behind a driver that was killed.

A child process in its own session that holds the other end of a pipe. The driver writes
what belongs to the run, one JSON line each (``{"pid": 1, "start": 2}`` or ``{"path":
…}``). When the pipe closes without ``{"done": true}``, the driver is dead: what is left
of the run is ended and removed. A pid counts only with its start time, so a re-used one
is never touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from relax.arguments.environment import child_environment, child_python_path
from relax.control.run_folder import process_start

GRACE_SECONDS = 3.0
POLL_SECONDS = 0.2


class Reaper:
    """The driver's end of the pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the child."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "relax.controller.reaper"],
            env=child_environment({"PYTHONPATH": child_python_path()}),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch_process(self, pid: int) -> None:
        """Ends this process if the driver dies."""
        self._tell({"pid": pid, "start": process_start(pid)})

    def watch_path(self, path: Path) -> None:
        """Removes this file or folder if the driver dies."""
        self._tell({"path": str(path)})

    def dismiss(self) -> None:
        """The driver cleaned up itself."""
        self._tell({"done": True})
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _tell(self, message: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # Somebody killed the reaper; the run itself is not harmed by that.
            self._process = None


def descendants(pids: set[int]) -> set[int]:
    """The processes and all their children's children, as they are now."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = set(pids)
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def _main() -> None:
    processes: dict[int, int] = {}
    paths: list[Path] = []
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("done"):
            return
        if "pid" in message:
            processes[message["pid"]] = message["start"]
        else:
            paths.append(Path(message["path"]))
    _end(processes)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _end(processes: dict[int, int]) -> None:
    def alive() -> set[int]:
        return {p for p, start in processes.items() if process_start(p) == start}

    deadline = time.monotonic() + GRACE_SECONDS
    for pid in descendants(alive()):
        _signal(pid, signal.SIGTERM)
    while alive() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for pid in descendants(alive()):
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    _main()
