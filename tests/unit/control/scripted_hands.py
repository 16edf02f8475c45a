"""A real controller, server and client; only the stages are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from relax.arguments.metric_names import MetricNames
from relax.control.client import RunClient
from relax.control.protocol import Seen, Stacks
from relax.control.run_folder import (
    RunInfo,
    boot_id,
    process_start,
    socket_path,
    write_run_info,
)
from relax.control.server import ControlServer
from relax.controller.loop import Controller, StageResult
from relax.controller.state import CarryOut, ControllerState, Phase, RunStage
from relax.controller.stops import StopConditions
from relax.events.append import EventWriter
from relax.events.tail import EventTail
from relax.events.types import Commanded, CommandKind, Event, Mode, Stage

WAIT_SECONDS = 5.0
KNOWN = MetricNames(names=frozenset({"train/grad_norm"}), complete=True)


class ScriptedHands:
    """Stages that begin when the controller says and end when the test says."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[RunStage] = asyncio.Queue()
        self.aborted = 0
        self.errands: list[CarryOut] = []
        self._results: asyncio.Queue[StageResult | Exception] = asyncio.Queue()

    def finish(self, result: StageResult | Exception | None = None) -> None:
        """Ends the running stage, or the next one as soon as it begins."""
        self._results.put_nowait(StageResult() if result is None else result)

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        self.begun.put_nowait(order)
        result = await self._results.get()
        if isinstance(result, Exception):
            raise result
        return result

    def evaluates(self, order: RunStage) -> bool:
        return False

    async def carry_out(self, order: CarryOut) -> str:
        self.errands.append(order)
        result = await self._results.get()
        if isinstance(result, Exception):
            raise result
        return f"{order.errand.kind} is done"

    async def abort_generation(self) -> None:
        self.aborted += 1

    async def stacks(self) -> Stacks:
        return Stacks(stacks={"train-0": "File a.py"}, missing={"engine-0": "is gone"})

    def processes(self) -> Mapping[str, int]:
        return {"driver": os.getpid()}

    def memory_bytes(self) -> Mapping[str, int]:
        return {"driver": 1}

    def cpu_seconds(self) -> Mapping[str, float]:
        return {"driver": 1.0}


class ScriptedRun:
    """One run of three rollouts; the test is its trainer and its engine."""

    def __init__(self, run_dir: Path, *, walk: bool = False) -> None:
        self.run_dir = run_dir
        self.hands = ScriptedHands()
        self.log = EventWriter(run_dir, run_id="r-1", attempt=1)
        self.socket = socket_path("r-1")
        self.client = RunClient(run_dir, by="alice@login1:1")
        self.controller = Controller(
            ControllerState(
                attempt=1,
                mode=Mode.FULL,
                num_rollout=3,
                first_rollout=0,
                rollout_id=-1,
                stage=Stage.UPDATE_WEIGHTS,
                walk=walk,
            ),
            hands=self.hands,
            events=self.log,
            run_id="r-1",
            stops=StopConditions((), first_rollout=0, known=KNOWN),
        )
        self.ended: asyncio.Task[str] | None = None

    async def begun(self) -> tuple[int, Stage]:
        """The stage that begins next."""
        order = await asyncio.wait_for(self.hands.begun.get(), WAIT_SECONDS)
        return order.rollout_id, order.stage

    async def pass_stage(self, result: StageResult | None = None) -> None:
        """Lets the stage that begins next end at once."""
        await self.begun()
        self.hands.finish(result)

    async def ask(self, kind: CommandKind, **fields):
        """Sends a command."""
        return await self.client.command(kind, **fields)

    async def phase_is(self, phase: Phase) -> None:
        """Waits for a phase."""
        await until(lambda: self.controller.state.phase is phase)

    async def pause(self) -> None:
        """Runs to the safe point before generation of rollout 0 and holds there."""
        await self.begun()
        await self.ask(CommandKind.PAUSE)
        self.hands.finish()
        await self.phase_is(Phase.PAUSED)

    def seen_now(self) -> Seen:
        """What a console that is up to date has seen."""
        state = self.controller.state
        return Seen(attempt=1, rollout_id=state.rollout_id, stage=state.stage)

    def events(self) -> list[Event]:
        """All events so far; closes the log."""
        self.log.close()
        return EventTail(self.run_dir).poll()

    def fates(self, command_id: str) -> list[str]:
        """What became of a command, from the log; closes the log."""
        payloads = [event.payload for event in self.events()]
        return [
            payload.phase
            for payload in payloads
            if isinstance(payload, Commanded) and payload.command_id == command_id
        ]


async def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds.

    Raises:
        TimeoutError: It did not within five seconds.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came true")
        await asyncio.sleep(0.002)


def run_info(*, socket_file: Path | str = "", pid: int | None = None, **fields):
    """A ``run.json`` of this process, or of another."""
    pid = os.getpid() if pid is None else pid
    defaults = {
        "run_id": "r-1",
        "name": "test",
        "attempt": 1,
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "pid": pid,
        "process_start": process_start(pid),
        "socket": str(socket_file),
        "interpreter": sys.executable,
    }
    return RunInfo(**{**defaults, **fields})


@contextlib.asynccontextmanager
async def scripted_run(
    run_dir: Path, *, walk: bool = False
) -> AsyncIterator[ScriptedRun]:
    """A run whose socket is open and whose first stage has begun."""
    run_dir.mkdir(parents=True, exist_ok=True)
    run = ScriptedRun(run_dir, walk=walk)
    write_run_info(run_dir, run_info(socket_file=run.socket))
    server = ControlServer(run.controller, run.socket)
    with run.log:
        await server.start()
        run.ended = asyncio.create_task(run.controller.run())
        try:
            yield run
        finally:
            run.ended.cancel()
            await asyncio.gather(run.ended, return_exceptions=True)
            await run.client.close()
            await server.stop()
