"""The run folder: ``run.json``, the lock, where the socket is, and the list of runs."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from relax.arguments.environment import runtime_dir, state_home
from relax.control.protocol import PROTOCOL_VERSION
from relax.errors import ControlError, RecordError, RunLocked
from relax.records.atomic import write_atomically

RUN_FILE = "run.json"
LOCK_FILE = "lock"


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What ``run.json`` says.

    Attributes:
        process_start: Start time of the driver in clock ticks since boot (field 22 of
            ``/proc/PID/stat``), which tells a re-used pid from the driver.
        socket: Path of the control socket; '' when the run has none.
    """

    run_id: str
    name: str
    attempt: int
    host: str
    boot_id: str
    pid: int
    process_start: int
    socket: str
    interpreter: str
    protocol: int = PROTOCOL_VERSION
    started: float = 0.0


class DriverState(StrEnum):
    """Whether a run's driver lives."""

    ALIVE = "alive"
    DEAD = "dead"
    OTHER_HOST = "other-host"


def boot_id() -> str:
    """The id of this host's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_start(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The command name may hold spaces and parentheses; the fields follow the last one.
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def read_run_info(run_dir: Path) -> RunInfo:
    """Reads ``run.json``.

    Raises:
        RecordError: The folder has none, or it is not one of ours.
    """
    path = run_dir / RUN_FILE
    try:
        fields = json.loads(path.read_bytes())
        known = {spec.name for spec in dataclasses.fields(RunInfo)}
        return RunInfo(**{key: fields[key] for key in fields if key in known})
    except FileNotFoundError as error:
        raise RecordError(
            "this is not a run folder (it has no run.json)",
            where=str(run_dir),
            hint="`relax-tui ls` lists the runs",
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RecordError(
            f"run.json cannot be read: {error}", where=str(path)
        ) from error


def write_run_info(run_dir: Path, info: RunInfo) -> None:
    """Writes ``run.json`` by rename."""
    text = json.dumps(dataclasses.asdict(info), indent=2) + "\n"
    write_atomically(run_dir / RUN_FILE, text.encode())


def driver_state(info: RunInfo) -> DriverState:
    """Whether the driver that wrote ``info`` lives, judged from this host."""
    if info.host != socket.gethostname():
        return DriverState.OTHER_HOST
    same_boot = info.boot_id == boot_id()
    if same_boot and process_start(info.pid) == info.process_start:
        return DriverState.ALIVE
    return DriverState.DEAD


class RunLock:
    """The lock a driver holds on its run folder for as long as it lives.

    The kernel releases it with the process, so a stale lock cannot exist.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_FILE
        self._descriptor = -1

    def acquire(self) -> None:
        """Takes the lock.

        Raises:
            RunLocked: Another driver holds it; the message names host and pid.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise RunLocked(
                f"another driver holds this run folder ({holder or 'unknown'})",
                where=str(self._path.parent),
                hint="attach to it with `relax-tui attach`, or use another --run-dir",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{socket.gethostname()} pid {os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock back; harmless when it was never taken."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def socket_path(run_id: str) -> Path:
    """Where a run's control socket lies, in a folder that only we may enter.

    A unix socket path holds 107 bytes, which a run folder easily exceeds, so the socket
    lies in the runtime folder and is named by the run id.

    Raises:
        ControlError: The folder exists and is not ours alone, or the path is too long.
    """
    folder = runtime_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ControlError(
            "the folder for control sockets is not ours alone",
            where=str(folder),
            hint="remove it, or set XDG_RUNTIME_DIR to a private folder",
        )
    path = folder / f"{run_id}.sock"
    if len(os.fsencode(path)) > 107:
        raise ControlError(
            "the control socket's path is longer than the 107 bytes of a unix socket",
            where=str(path),
            hint="set XDG_RUNTIME_DIR to a shorter folder",
        )
    return path


def runs_folder() -> Path:
    """Where each run leaves a link, for `relax-tui ls`."""
    return state_home() / "relax" / "runs"


def link_run(run_dir: Path, run_id: str) -> None:
    """Leaves the run's link; an existing one of the same run is replaced."""
    folder = runs_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = folder / run_id
    temporary = folder / f".{run_id}.{os.getpid()}"
    temporary.symlink_to(run_dir.absolute())
    temporary.replace(link)


def linked_runs() -> Iterator[Path]:
    """Run folders that still exist, newest first."""
    folder = runs_folder()
    if not folder.is_dir():
        return
    links = [link for link in folder.iterdir() if link.is_symlink()]
    targets = [target for link in links if (target := link.resolve()).is_dir()]
    dated = [(t / RUN_FILE, t) for t in targets if (t / RUN_FILE).is_file()]
    for _, target in sorted(dated, key=lambda d: d[0].stat().st_mtime, reverse=True):
        yield target
