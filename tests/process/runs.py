"""Real runs in real processes, for the tests of this folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from relax.control.client import RunClient
from relax.control.protocol import CommandAnswer, RunStatus, Seen
from relax.control.run_folder import process_start, read_run_info
from relax.errors import ControlError, RecordError
from relax.events.tail import EventTail
from relax.events.types import CommandKind, Event, Payload
from relax.records.open import StepRecord

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "relax" / "entrypoints" / "train.py"
DEMO = ROOT / "examples" / "tiny_arith" / "demo.yaml"
START_SECONDS = 120.0


class Run:
    """A run that a test started; ended and checked when the test is over."""

    def __init__(self, run_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self.run_dir = run_dir
        self.process = process
        self.events: list[Event] = []
        self._tail = EventTail(run_dir)

    def poll(self) -> list[Event]:
        self.events += self._tail.poll()
        return self.events

    def of(self, kind: type[Payload]) -> list:
        """Payloads of one type so far."""
        return [e.payload for e in self.poll() if isinstance(e.payload, kind)]

    def wait(self, condition: Callable[[], object], *, seconds: float = START_SECONDS):
        """Waits until a condition gives something; fails with the run's last words."""
        pause = threading.Event()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.poll()
            found = condition()
            if found:
                return found
            ended = self.process.poll()
            if ended is not None and not condition():
                raise AssertionError(f"the run ended with {ended}: {self.last_words()}")
            pause.wait(0.05)
        raise AssertionError(f"waited {seconds:g} s in vain: {self.last_words()}")

    def wait_for(self, kind: type[Payload], *, count: int = 1, seconds=START_SECONDS):
        """The ``count``-th payload of a type, once it is there."""
        self.wait(lambda: len(self.of(kind)) >= count, seconds=seconds)
        return self.of(kind)[count - 1]

    def command(self, kind: CommandKind, **fields) -> CommandAnswer:
        async def send() -> CommandAnswer:
            client = RunClient(self.run_dir, by="test")
            try:
                return await client.command(kind, **fields)
            finally:
                await client.close()

        return asyncio.run(send())

    def ask(self, question: str):
        async def send():
            client = RunClient(self.run_dir, by="test")
            try:
                return await getattr(client, question)()
            finally:
                await client.close()

        return asyncio.run(send())

    def status(self) -> RunStatus:
        return self.ask("status")

    def go_on(self) -> CommandAnswer:
        return self.command(CommandKind.CONTINUE, seen=Seen())

    def record(self, rollout_id: int) -> StepRecord:
        return StepRecord(self.run_dir, 1, rollout_id)

    def end(self, *, seconds: float = 60.0) -> int:
        """Waits for the driver to end by itself; its exit code."""
        code = self.process.wait(seconds)
        self.poll()
        return code

    def last_words(self) -> str:
        text = (self.run_dir / "driver.out").read_text(errors="replace")
        return text[-2000:]


@contextlib.contextmanager
def started(
    run_dir: Path,
    *flags: str,
    config: Path = DEMO,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Run]:
    """Starts a driver on the tiny model; kills it if the test did not end it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(TRAIN), "--config", str(config), "--run-dir"]
    with (run_dir / "driver.out").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(run_dir), "--eval-interval", "1000", *flags],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    run = Run(run_dir, process)
    try:
        yield run
    finally:
        with contextlib.suppress(ControlError, RecordError):
            if process.poll() is None:
                run.command(CommandKind.KILL)
                process.wait(30)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def demo_without_reward(folder: Path) -> Path:
    """A copy of the demo's configuration that names no reward."""
    lines = [line for line in DEMO.read_text().splitlines() if "rm-type" not in line]
    text = "\n".join(lines)
    for name in ("model", "train.jsonl", "heldout.jsonl"):
        text = re.sub(rf"(: |, ){re.escape(name)}\b", rf"\1{DEMO.parent / name}", text)
    config = folder / "demo.yaml"
    config.write_text(text)
    return config


def living(pids: dict[str, int], starts: dict[str, int]) -> list[str]:
    """Names of the processes that still live; a re-used pid does not count."""
    return [name for name, pid in pids.items() if process_start(pid) == starts[name]]


def wait_until(condition: Callable[[], object], *, seconds: float) -> bool:
    """Whether a condition comes true in time."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        pause.wait(0.1)
    return bool(condition())


def driver_pid(run: Run) -> int:
    return read_run_info(run.run_dir).pid
