"""The run folder: its lock, whose driver lives, and the list of runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from scripted_hands import run_info

from relax.control.run_folder import (
    DriverState,
    RunLock,
    driver_state,
    link_run,
    linked_runs,
    process_start,
    read_run_info,
    socket_path,
    write_run_info,
)
from relax.errors import ControlError, RecordError

SECOND_DRIVER = """
import sys
from pathlib import Path
from relax.control.run_folder import RunLock
from relax.errors import RunLocked
try:
    RunLock(Path(sys.argv[1])).acquire()
except RunLocked as error:
    print(error)
"""


def second_driver(folder) -> str:
    return subprocess.run(
        [sys.executable, "-c", SECOND_DRIVER, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout


def test_a_second_driver_is_refused_by_the_first_ones_host_and_pid(tmp_path):
    lock = RunLock(tmp_path)
    lock.acquire()
    refused = second_driver(tmp_path)
    assert f"{socket.gethostname()} pid {os.getpid()}" in refused
    assert "--run-dir" in refused
    lock.release()
    lock.release()
    assert second_driver(tmp_path) == ""


def test_a_lock_dies_with_its_driver(tmp_path):
    second_driver(tmp_path)
    lock = RunLock(tmp_path)
    lock.acquire()
    lock.release()


def test_run_info_reads_back(tmp_path):
    info = run_info(socket_file="/run/x.sock", started=12.5)
    write_run_info(tmp_path, info)
    assert read_run_info(tmp_path) == info
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(RecordError, match="not a run folder"):
        read_run_info(tmp_path)
    for content in (b"", b"[]", b'{"run_id": "r"}'):
        (tmp_path / "run.json").write_bytes(content)
        with pytest.raises(RecordError, match=r"run\.json cannot be read"):
            read_run_info(tmp_path)


def test_a_reused_pid_is_not_the_driver():
    assert driver_state(run_info()) is DriverState.ALIVE
    reused = run_info(process_start=process_start(os.getpid()) - 1)
    assert driver_state(reused) is DriverState.DEAD
    assert driver_state(run_info(boot_id="another")) is DriverState.DEAD
    assert driver_state(run_info(host="node7")) is DriverState.OTHER_HOST


def test_a_process_that_ended_is_not_alive():
    with subprocess.Popen(["sleep", "60"]) as process:
        info = run_info(pid=process.pid)
        assert driver_state(info) is DriverState.ALIVE
        process.kill()
        # A zombie has ended, even before its parent asked how.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert driver_state(info) is DriverState.DEAD
    assert process_start(process.pid) == 0


def test_a_socket_folder_that_others_may_enter_is_refused(runtime):
    (runtime / "relax").mkdir(mode=0o755)
    with pytest.raises(ControlError, match="not ours alone"):
        socket_path("r-1")


def test_a_socket_path_longer_than_a_socket_holds_is_refused(runtime):
    assert len(str(socket_path("r" * 20))) <= 107
    with pytest.raises(ControlError, match="107 bytes"):
        socket_path("r" * 108)


def test_linked_runs_come_newest_first_without_those_that_are_gone(tmp_path):
    for age, name in enumerate(("old", "new", "gone")):
        folder = tmp_path / name
        folder.mkdir()
        write_run_info(folder, run_info())
        os.utime(folder / "run.json", (age, age))
        link_run(folder, name)
    (tmp_path / "gone" / "run.json").unlink()
    link_run(tmp_path / "new", "new")
    assert [folder.name for folder in linked_runs()] == ["new", "old"]


def test_no_links_are_no_runs():
    assert list(linked_runs()) == []
