"""Stacks of a process that is busy, asked for again and again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relax.controller.watch import innermost_place
from relax.observe.stacks import STACK_SIGNAL, ask_for_stacks, is_whole, stack_path

BUSY = Path(__file__).with_name("busy_process.py")
ASKED = 100


@contextlib.contextmanager
def answering(folder: Path, *, threads: int):
    with subprocess.Popen(
        [sys.executable, BUSY, folder, str(threads)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


@pytest.fixture
def busy(tmp_path):
    with answering(tmp_path, threads=3) as process:
        yield process


def answered(path: Path, size: int, process: subprocess.Popen) -> int:
    """The size of the file once it has grown."""
    deadline = time.monotonic() + 60
    while path.stat().st_size <= size or not is_whole(path):
        assert process.poll() is None, f"it died with {process.returncode}"
        assert time.monotonic() < deadline
    return path.stat().st_size


def test_asking_does_not_harm_what_is_asked(tmp_path, busy):
    """Frames of running threads, read from a signal handler, crash within seconds."""
    path = stack_path(tmp_path, "busy")
    size = 0
    for _ in range(ASKED):
        assert ask_for_stacks(tmp_path, "busy", busy.pid)
        size = answered(path, size, busy)
    text = path.read_text()
    assert text.count('"MainThread" (most recent call first)') == ASKED
    assert text.count('"churning" (most recent call first)') == 3 * ASKED
    assert f'File "{BUSY}", line' in text


def test_a_signal_adds_to_what_the_thread_has_written(tmp_path):
    path = stack_path(tmp_path, "busy")
    # Idle: what a signal finds in a thread that runs is not safe.
    with answering(tmp_path, threads=0) as idle:
        assert ask_for_stacks(tmp_path, "busy", idle.pid)
        size = answered(path, 0, idle)
        before = path.read_text()
        os.kill(idle.pid, STACK_SIGNAL)
        deadline = time.monotonic() + 60
        while path.stat().st_size <= size:
            assert time.monotonic() < deadline
    assert path.read_text().startswith(before)


def test_nobody_listens(tmp_path, busy):
    assert not ask_for_stacks(tmp_path, "busy", busy.pid + 1)
    assert not ask_for_stacks(tmp_path, "idle", busy.pid)
    assert not ask_for_stacks(tmp_path / "other", "busy", busy.pid)


RAY = '  File "/x/relax/.venv/lib/ray/_private/worker.py", line 1069 in main_loop\n'
WAIT = '  File "/usr/lib/python3.11/selectors.py", line 468 in select\n'
OURS = '  File "/x/relax/backends/megatron/step/train.py", line 12 in train_step\n'
IDLE = f'  File "/usr/lib/python3.11/threading.py", line 327 in wait\n{OURS}'


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (f'Thread 1 "MainThread":\n{IDLE}{RAY}', "threading.py:327 in wait"),
        (
            f'Thread 4 "rows":\n{IDLE}\nThread 2 "asyncio_0":\n{OURS}\n'
            f'Thread 1 "MainThread":\n{RAY}',
            "train.py:12 in train_step",
        ),
        (
            f'Thread 4 "rows":\n{IDLE}\nThread 3 "AsyncIO":\n{WAIT}\n'
            f'Thread 1 "MainThread":\n{RAY}',
            "worker.py:1069 in main_loop",
        ),
        ("", ""),
    ],
    ids=["an actor's call", "beside the loop", "idle", "nothing"],
)
def test_the_place_is_where_the_work_is(stack, place):
    assert innermost_place(stack) == place
