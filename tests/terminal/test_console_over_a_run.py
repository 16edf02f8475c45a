"""A console that comes, goes and is killed over a run that is really training.

One demo run for all tests here: each attaches a console of its own and leaves the run
as it found it; the last one kills the driver.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pty_session import console_session

from relax.control.run_folder import DriverState, driver_state, read_run_info
from relax.events.tail import last_event

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0

pytestmark = [pytest.mark.terminal, pytest.mark.engine]


class Demo:
    """The run, and consoles that look at it."""

    def __init__(self, folder):
        self.run_dir = folder / "run"
        self.folder = folder

    def console(self, *words):
        return console_session(*words, home=self.folder, OMP_NUM_THREADS="1")

    @property
    def alive(self):
        return driver_state(read_run_info(self.run_dir)) is DriverState.ALIVE

    def goes_on(self):
        """Whether events still come; looked at through a console of its own."""
        before = last_event(self.run_dir).seq
        console = self.attach()
        try:
            for _ in range(200):
                console.read(0.1)
                if last_event(self.run_dir).seq > before + 5:
                    return self.alive
        finally:
            console.close()
        return False

    def attach(self):
        console = self.console("attach", str(self.run_dir))
        console.wait_for("6 sample ·", 60)
        return console


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    run = Demo(tmp_path_factory.mktemp("over-a-run"))
    words = ("demo", "--num-rollout", "5000", "--run-dir", str(run.run_dir))
    first = run.console(*words)
    try:
        first.wait_for("6 sample ·", START_SECONDS)
        # The console that started the run is killed; the others find it alive.
        first.process.kill()
        first.process.wait(10)
        yield run
    finally:
        first.close()
        info = read_run_info(run.run_dir)
        if driver_state(info) is DriverState.ALIVE:
            os.kill(info.pid, signal.SIGKILL)


@pytest.fixture
def console(demo):
    session = demo.attach()
    yield session
    session.close()


def test_the_run_outlives_the_console_that_started_it(demo, console):
    assert demo.alive
    assert demo.goes_on()
    # What was learnt before this console came is there: curves, checks, first figures.
    console.wait_for("KL 0 PASS", 60)
    console.wait_for("PASS weights_arrived", 60)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_a_console_that_is_ended_leaves_the_run_alone(number, demo, console):
    console.process.send_signal(number)
    code = console.wait_end()
    if number == signal.SIGKILL:
        assert code == -number
    else:
        assert code == 0
        assert console.restored() == []
    assert demo.goes_on()


def test_a_terminal_that_closes_leaves_the_run_alone(demo, console):
    os.close(console.master)
    os.close(console.slave)
    console.master = console.slave = -1
    assert console.process.wait(15) is not None
    assert demo.goes_on()


def test_paused_and_seen_again_by_another_console(demo, console):
    console.press("p")
    console.wait_for("safe point")
    console.press("y")
    console.wait_for("PAUSED", 60)
    other = demo.attach()
    try:
        other.wait_for("PAUSED")
        for session in (console, other):
            session.settle(1.0)
            assert session.read(5.0) == b""
        other.press("c")
        console.wait_for("running")
    finally:
        other.close()
    assert demo.goes_on()


def test_a_driver_that_is_killed_is_lost_and_the_way_back_is_shown(demo, console):
    os.kill(read_run_info(demo.run_dir).pid, signal.SIGKILL)
    console.wait_for(" LOST ", 30)
    text = " ".join(console.text.split())
    assert "started again it begins anew at rollout 0" in text
    assert f"relax-tui run --run-dir {demo.run_dir}"[:60] in text
    console.settle(1.0)
    assert console.read(5.0) == b""
    console.press("q")
    assert console.wait_end() == 0
    assert console.restored() == []
