"""Python stacks of a process, asked for from another process of the same host.

A thread of the process itself writes them: it holds the interpreter lock meanwhile, so
the frames it reads stand still. A signal handler that reads the frames of *running*
threads, as `faulthandler.register` installs one, can crash the process that it was
meant to explain. It stays armed for the one case in which the thread cannot answer and
nothing moves either: native code that never gives the lock back.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import hashlib
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

STACK_SIGNAL = signal.SIGUSR1
THREAD_NAME = "stacks"
WAIT_SECONDS = 1.5
POLL_SECONDS = 0.02
END = "End of stacks\n"
"""Whoever reads the file while it grows knows by this that an answer is whole."""
_CREDENTIALS = struct.Struct("3i")
_kept_open: list[object] = []


def stack_path(run_dir: Path, name: str) -> Path:
    """Where a process writes its stacks when it is asked to."""
    return run_dir / "logs" / f"stacks-{name}.txt"


def answer_with_stacks(run_dir: Path, name: str) -> None:
    """From now on the process writes its stacks when it is asked, and on a crash.

    Args:
        run_dir: The run folder.
        name: The process's name, e.g. ``train-0``.

    Raises:
        OSError: The file or the socket cannot be made.
    """
    path = stack_path(run_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Kept open on purpose: faulthandler needs the descriptor for the process's life. It
    # appends, as the thread does: neither writes over what the other has written.
    path.unlink(missing_ok=True)
    stream = path.open("a", encoding="utf-8")
    faulthandler.register(STACK_SIGNAL, file=stream, all_threads=True)
    faulthandler.enable(file=sys.__stderr__ or stream)
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    asked.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    asked.bind(_address(run_dir, name, os.getpid()))
    _kept_open.extend((stream, asked))
    threading.Thread(
        target=_answer, args=(asked, path), name=THREAD_NAME, daemon=True
    ).start()


def ask_for_stacks(run_dir: Path, name: str, pid: int) -> bool:
    """Asks a process of this host for its stacks; False when nobody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0)
        try:
            asking.sendto(b"?", _address(run_dir, name, pid))
        except BlockingIOError:
            # Asked already, and not answered yet.
            return True
        except OSError:
            return False
    return True


async def write_stacks(folder: Path, pids: Mapping[str, int]) -> dict[str, str]:
    """Has processes of this host write their stacks.

    Args:
        folder: The run folder, or where they write instead.
        pids: By name.

    Returns:
        By name, why one did not.
    """
    sizes = stack_sizes(folder, pids)
    missing = {
        name: f"pid {pid} is gone, or still starting"
        for name, pid in pids.items()
        if not ask_for_stacks(folder, name, pid)
    }
    asked = {n: sizes[n] for n in pids.keys() - missing.keys()}
    silent = await _silent(folder, asked, whole=is_whole)
    for name in silent:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[name], STACK_SIGNAL)
    left = {name: sizes[name] for name in silent}
    silent = await _silent(folder, left, whole=lambda _: True)
    return missing | dict.fromkeys(silent, "no answer yet: it is in native code")


def stack_sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes of stacks that processes have written so far, by name."""
    return {name: _size(stack_path(folder, name)) for name in names}


def is_whole(path: Path) -> bool:
    """Whether the last answer in a file of stacks has been written to its end."""
    with path.open("rb") as stream:
        stream.seek(max(0, _size(path) - len(END)))
        return stream.read() == END.encode()


async def _silent(
    folder: Path, sizes: Mapping[str, int], *, whole: Callable[[Path], bool]
) -> set[str]:
    """Waits a moment for files to grow; gives the names of those that did not."""
    deadline = time.monotonic() + WAIT_SECONDS
    silent = set(sizes)
    while silent and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        paths = {name: stack_path(folder, name) for name in silent}
        silent = {
            name
            for name, path in paths.items()
            if _size(path) <= sizes[name] or not whole(path)
        }
    return silent


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _address(run_dir: Path, name: str, pid: int) -> bytes:
    """An abstract socket: it leaves nothing on a disk and dies with its process."""
    key = hashlib.sha256(f"{run_dir.absolute()}\0{name}\0{pid}".encode()).hexdigest()
    return f"\0relax-stacks-{key[:32]}".encode()


def _answer(asked: socket.socket, path: Path) -> None:
    while True:
        _, ancillary, _, _ = asked.recvmsg(16, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not any(_is_own_user(*message) for message in ancillary):
            continue
        text = (all_stacks() + END).encode("utf-8", "backslashreplace")
        with path.open("ab") as stream:
            stream.write(text)


def _is_own_user(level: int, kind: int, data: bytes) -> bool:
    if (level, kind) != (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
        return False
    _, uid, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
    return int(uid) in (0, os.getuid())


def all_stacks() -> str:
    """All threads of this process but the asking one, innermost line first.

    The form is faulthandler's, with each thread's name in its heading.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    return "".join(
        f'Thread {ident:#018x} "{names.get(ident, "of native code")}"'
        " (most recent call first):\n" + "".join(_lines(frame)) + "\n"
        for ident, frame in sys._current_frames().items()
        if ident != own
    )


def _lines(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n'
        frame = frame.f_back
