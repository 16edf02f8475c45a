"""For all tests: fixed budgets for generated cases, and nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GRACE_SECONDS = 5.0

# The same cases on every machine and at every run: a failure can be repeated.
settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process, a thread or a socket open.

    What ends within five seconds of itself is forgiven. A test that must leave
    something says why: ``@pytest.mark.leaves_behind("…")``.
    """
    before = _open_things()
    yield
    marker = request.node.get_closest_marker("leaves_behind")
    if marker is not None:
        if not marker.args:
            raise pytest.UsageError("leaves_behind needs a reason")
        return
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := _open_things() - before) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    if left:
        pytest.fail(f"left behind: {', '.join(sorted(left))}", pytrace=False)


def _open_things() -> set[str]:
    return {*_children(), *_threads(), *_sockets()}


def _children() -> set[str]:
    """Child processes of this one, by pid and command."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread of the test may end while we look.
        try:
            pids = (task / "children").read_text().split()
        except OSError:
            continue
        found.update(f"process {pid} ({_command(pid)})" for pid in pids)
    return {name for name in found if not name.endswith("()")}


def _command(pid: str) -> str:
    """The command line; '' for a process that is gone or a zombie."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    text = command.replace(b"\0", b" ").decode(errors="replace").strip()
    # multiprocessing keeps one tracker for the whole session.
    return "" if "resource_tracker" in text else text[:80]


def _threads() -> set[str]:
    return {
        f"thread {thread.name}"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    }


def _sockets() -> set[str]:
    """Listening sockets of this process: TCP and unix ones with a path."""
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return {f"socket {name}" for inode, name in _listening() if inode in inodes}


def _listening() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        # 00010000 marks a socket that accepts connections.
        if len(fields) > 7 and fields[3] == "00010000":
            yield fields[6], fields[7]
    for family in ("tcp", "tcp6"):
        table = Path("/proc/net") / family
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                yield fields[9], f"{family} {fields[1]}"
