"""A run with a real control socket behind the app, answered as a test wants it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from screens import make_run, screen_text

from relax.control.protocol import CommandAnswer, RunStatus, Stacks
from relax.control.run_folder import read_run_info, write_run_info
from relax.control.server import ControlServer
from relax.events.types import Commanded, CommandPhase
from relax_tui.app import ConsoleApp
from relax_tui.sources.run_folder import RunFolderSource


class Controller:
    """Answers as told and remembers what was asked."""

    def __init__(self, run):
        self.run = run
        self.asked = []
        self.refusal = ""

    async def command(self, request):
        self.asked.append(request)
        phase = CommandPhase.REFUSED if self.refusal else CommandPhase.ACCEPTED
        self.say(request, phase, self.refusal)
        return CommandAnswer(
            id=request.id,
            accepted=not self.refusal,
            reason=self.refusal,
            waits_for="after generate of rollout 4",
            seconds=3.0,
        )

    def say(self, request, phase, reason="", seconds=0.0):
        self.run.events.append(
            Commanded(
                command_id=request.id,
                kind=request.kind,
                phase=phase,
                by=request.by,
                reason=reason,
                seconds=seconds,
            )
        )

    def status(self):
        return RunStatus(
            run_id="x", attempt=1, phase="running", mode="full", rollout_id=0,
            num_rollout=1,
        )  # fmt: skip

    async def stacks(self):
        return Stacks(stacks={"train-0": "File worker.py, line 88"}, missing={})


@asynccontextmanager
async def steering(tmp_path, story, **more):
    """The app on a run with a control socket: ``(app, pilot, controller)``."""
    run_dir = tmp_path / "run"
    run = make_run(run_dir, story)
    controller = Controller(run)
    socket = Path("/tmp") / f"relax-test-{uuid.uuid4().hex[:8]}.sock"
    server = ControlServer(controller, socket)
    await server.start()
    info = read_run_info(run_dir)
    write_run_info(run_dir, replace(info, socket=str(socket)))
    app = ConsoleApp(
        lambda folder, app: RunFolderSource(folder, **more), run_dir=run_dir
    )
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.shown.viewed is not None)
            yield app, pilot, controller
    finally:
        await server.stop()
        run.close()


async def until(pilot, holds, seconds=10.0):
    for _ in range(int(seconds / 0.05)):
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(screen_text(pilot.app))
