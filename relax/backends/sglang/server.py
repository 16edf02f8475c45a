"""A server's process: start, readiness, death, and the end of its whole tree."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from relax.backends.sglang.api import SglangApi
from relax.backends.sglang.command import (
    ServerSettings,
    command_line,
    server_environment,
)
from relax.errors import EngineDied, EngineUnreachable

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - looked at, not written to
START_SECONDS: Final = 900.0
POLL_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 3.0

_DIES_WITH_PARENT: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
"""PR_SET_PDEATHSIG in the child itself: it holds across exec, and no Python code runs
between fork and exec of a process that has threads."""

_RAISED: Final = re.compile(r"(?:Error|Exception|Interrupt): .")
_SIGNS: Final = re.compile(
    r"SIGQUIT|out of memory|Killed|response from detokenizer"
    r"|address already in use|No module named"
)
_WORD: Final = string.ascii_letters + string.digits + "_"
_TRACKER: Final = re.compile(r"resource_tracker")
_EXIT_CODE: Final = 49
"""The last field of ``/proc/PID/stat``, counted from the state: as `os.wait` has it."""
_INSIDE: Final = re.compile(r"sglang::(scheduler|detokenizer)")


class ServerProcess:
    """One SGLang server of this host.

    Args:
        settings: What it is started with.
        log: File that takes its output; appended to.
    """

    def __init__(self, settings: ServerSettings, *, log: Path) -> None:
        self._settings = settings
        self.log = log
        self._offset = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._inside: dict[int, str] = {}
        self._shared: set[Path] = set()
        self.url = ""

    @property
    def pid(self) -> int:
        """Of the process that was started; it leads a session of its own."""
        return self._process.pid if self._process is not None else 0

    @property
    def shared(self) -> frozenset[Path]:
        """Shared-memory files that it leaves behind when it is killed."""
        return frozenset(self._shared)

    async def start(self) -> None:
        """Starts the process and waits until the server answers.

        Raises:
            EngineDied: It ended; carries the telling line of its log.
            EngineUnreachable: It does not answer in `START_SECONDS`.
        """
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._launch(port)
        deadline = time.monotonic() + START_SECONDS
        try:
            async with SglangApi(self.url, connections=1) as api:
                while not await api.healthy():
                    self._inside |= self._parts()
                    self.check()
                    if time.monotonic() > deadline:
                        raise EngineUnreachable(
                            f"the server is not ready after {START_SECONDS:.0f} s: "
                            f"{self.last_words()}",
                            where=str(self.log),
                        )
                    await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            await self.stop()
            raise
        self._inside = self._parts()
        self._shared = shared_files(self.pid)

    def check(self) -> None:
        """Looks whether all of it lives.

        A scheduler's end is noticed here at once: the server itself first spends some
        seconds on a diagnosis.

        Raises:
            EngineDied: Says which part ended and what the log says.
        """
        if self._process is None:
            raise EngineDied("the server was not started", where=str(self.log))
        code = self._process.poll()
        if code is not None:
            raise EngineDied(
                f"the SGLang server {_ended(code)}: {self.last_words()}",
                where=str(self.log),
            )
        for pid, name in self._inside.items():
            if gone := _how_gone(pid):
                raise EngineDied(
                    f"SGLang's {name} (pid {pid}) {gone}: {self.last_words()}",
                    where=str(self.log),
                )

    def stopped_part(self) -> str:
        """The part that a signal or a debugger has stopped; '' for none."""
        for pid, name in {self.pid: "main process", **self._inside}.items():
            if _stat(pid)[:1] in (["T"], ["t"]):
                return f"{name} (pid {pid})"
        return ""

    def last_words(self) -> str:
        """The telling line of its log since the start."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read().decode("utf-8", "backslashreplace")
        except OSError:
            return "it left no log"
        lines = (line.strip() for line in text.splitlines())
        # The first cause comes first; what follows are its consequences.
        telling = filter(None, map(_telling, lines))
        return next(telling, "its log does not say why")[:500]

    async def stop(self) -> None:
        """Ends the process and all that it started."""
        if self._process is None:
            return
        session = self._process.pid
        self._shared |= shared_files(session)
        # It holds nothing that is worth a farewell, and would take seconds over one.
        # Python's resource tracker removes what the others leave, once they are gone.
        for spared in (_TRACKER, None):
            await self._kill_all(session, spared=spared)
        self._process.wait()
        # Ended this way SGLang leaves its shared memory behind.
        for path in self._shared:
            path.unlink(missing_ok=True)

    async def _kill_all(self, session: int, *, spared: re.Pattern[str] | None) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while members := session_members(session):
            for pid in members:
                if spared is None or not spared.search(_command_line(pid)):
                    _kill(pid)
            if time.monotonic() > deadline:
                return
            if self._process is not None:
                self._process.poll()
            await asyncio.sleep(0.05)

    def _launch(self, port: int) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = command_line(self._settings, port=port)
        with self.log.open("ab") as stream:
            stream.write(f"$ {' '.join(command)}\n".encode())
            stream.flush()
            self._offset = stream.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _DIES_WITH_PARENT, *command],
                env=server_environment(self._settings),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def _parts(self) -> dict[int, str]:
        parts: dict[int, str] = {}
        for pid in session_members(self.pid):
            if found := _INSIDE.search(_command_line(pid)):
                parts[pid] = found[1]
        return parts


def _telling(line: str) -> str:
    """What a line says about an end; '' if it says nothing.

    Servers print their arguments as one line of many thousand characters: patterns that
    may begin anywhere and go on to its end would take seconds on it.
    """
    if raised := _RAISED.search(line):
        return line[len(line[: raised.start()].rstrip(_WORD)) :]
    return line if _SIGNS.search(line) else ""


def session_members(session: int) -> list[int]:
    """Pids of the processes of a session, zombies left out."""
    members = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # State, parent, process group, session.
        match _stat(int(folder.name))[:4]:
            case [state, _, _, of] if int(of) == session and state != "Z":
                members.append(int(folder.name))
    return members


def shared_files(session: int) -> set[Path]:
    """Shared-memory files that a session's processes have mapped.

    By inode: a semaphore is mapped under the name that it had before it got its own.
    """
    inodes: set[int] = set()
    for pid in session_members(session):
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found = re.findall(r"(\d+)\s+/dev/shm/.*$", maps, re.MULTILINE)
        inodes |= {int(inode) for inode in found}
    return {path for path in SHARED_MEMORY.iterdir() if _inode(path) in inodes}


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _command_line(pid: int) -> str:
    """Words of a process's command; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; none when the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def _how_gone(pid: int) -> str:
    """How a process that is not ours ended; '' while it lives."""
    stat = _stat(pid)
    if not stat:
        return "is gone"
    if stat[0] != "Z":
        return ""
    status = int(stat[_EXIT_CODE])
    return _ended(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else status >> 8)


def _ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
