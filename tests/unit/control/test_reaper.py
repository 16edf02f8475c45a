"""A driver that was killed leaves nothing behind, and touches nobody else's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from relax.control.run_folder import process_start
from relax.controller.reaper import Reaper, descendants

DRIVER = """
import subprocess, sys, time
from pathlib import Path
from relax.controller.reaper import Reaper
reaper = Reaper()
reaper.start()
child = subprocess.Popen(sys.argv[2:], start_new_session=True)
reaper.watch_process(child.pid)
reaper.watch_path(Path(sys.argv[1]))
reaper.watch_path(Path(sys.argv[1] + ".sock"))
print(child.pid, flush=True)
time.sleep(60)
"""
# Ignores SIGTERM, and has a child of its own.
STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "60"])
print("ready", flush=True)
time.sleep(60)
"""


def gone_within(seconds: float, *things) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(exists, things)):
            return True
        threading.Event().wait(0.05)
    return False


def exists(thing) -> bool:
    return bool(process_start(thing)) if isinstance(thing, int) else thing.exists()


@pytest.mark.parametrize("child", [["sleep", "60"], [sys.executable, "-c", STUBBORN]])
def test_a_killed_driver_leaves_no_process_and_no_path(tmp_path, child):
    session, socket_file = tmp_path / "session", tmp_path / "session.sock"
    session.mkdir()
    (session / "log").write_text("x")
    socket_file.touch()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(session), *child], stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        words = [driver.stdout.readline().strip() for _ in range(len(child) - 1)]
        pid = int(next(word for word in words if word != b"ready"))
        family = descendants({pid})
        os.kill(driver.pid, signal.SIGKILL)
    assert gone_within(5, session, socket_file, *family)


def test_a_dismissed_reaper_touches_nothing(tmp_path):
    reaper = Reaper()
    reaper.start()
    with subprocess.Popen(["sleep", "60"]) as child:
        reaper.watch_process(child.pid)
        reaper.watch_path(tmp_path)
        reaper.dismiss()
        assert child.poll() is None
        assert tmp_path.exists()
        child.kill()
