"""Commands: what is asked, what is sent, what became of it; over a real socket."""

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


async def test_pausing_is_asked_sent_answered_and_done(tmp_path):
    async with steering(tmp_path, "generating") as (app, pilot, controller):
        await pilot.press("p")
        text = screen_text(app)
        assert "safe point" in text
        assert f"relax-tui tell {tmp_path / 'run'} pause"[:60] in text
        await pilot.press("enter")
        assert "not sent" in screen_text(app)
        assert controller.asked == []
        await pilot.press("p", "y")
        await until(pilot, lambda: "accepted, waits for" in screen_text(app))
        assert "after generate of rollout 4, about 3 s" in screen_text(app)
        (request,) = controller.asked
        assert request.seen.attempt == 1
        assert request.seen.rollout_id is None
        controller.say(request, CommandPhase.DONE, seconds=12.34)
        await until(pilot, lambda: "done in 12.3 s" in screen_text(app))


async def test_going_on_says_what_was_seen_and_does_not_ask(tmp_path):
    async with steering(tmp_path, "paused") as (_app, pilot, controller):
        await pilot.press("c")
        await until(pilot, lambda: controller.asked)
        (request,) = controller.asked
        assert request.kind == "continue"
        assert (request.seen.rollout_id, request.seen.stage) == (4, "generate")
        assert (request.seen.attempt, request.seen.mode) == (1, "full")


async def test_a_refusal_gives_its_reason(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        controller.refusal = "alice has stepped meanwhile"
        await pilot.press("s")
        wanted = "refused alice has stepped meanwhile"
        await until(pilot, lambda: wanted in screen_text(app))


async def test_what_is_impossible_is_not_sent(tmp_path):
    async with steering(tmp_path, "generating") as (app, pilot, controller):
        for key in ("c", "s", "S", "W"):
            await pilot.press(key)
            assert "refused" in screen_text(app)
        assert controller.asked == []


async def test_read_only_sends_nothing(tmp_path):
    async with steering(tmp_path, "paused", read_only="asked for") as (
        app,
        pilot,
        controller,
    ):
        for key in ("c", "s", "p", "X", "K", "A", "b", "x"):
            await pilot.press(key)
            assert "read-only" in screen_text(app)
        assert controller.asked == []
        assert "READ-ONLY" in screen_text(app)


async def test_stop_conditions_are_checked_before_they_are_sent(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        await pilot.press("b", *"nonsense", "enter")
        await until(pilot, lambda: "refused" in screen_text(app))
        assert controller.asked == []
        await pilot.press("b", *"grad_norm > 10, verdict:FAIL", "enter")
        await until(pilot, lambda: controller.asked)
        assert controller.asked[0].conditions == (
            "grad_norm > 10.0",
            "verdict:FAIL",
        ) or (controller.asked[0].conditions == ("grad_norm > 10", "verdict:FAIL"))


async def test_stacks_are_shown(tmp_path):
    async with steering(tmp_path, "generating") as (app, pilot, _):
        await pilot.press("x")
        await until(pilot, lambda: "worker.py, line 88" in screen_text(app))
        await pilot.press("q")
        await pilot.pause()
        assert "worst first" in screen_text(app) or "generated" in screen_text(app)


async def test_a_run_that_does_not_answer_is_said(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, _):
        info = read_run_info(tmp_path / "run")
        gone = replace(info, socket="/tmp/relax-test-gone.sock")
        write_run_info(tmp_path / "run", gone)
        await pilot.press("c")
        await until(pilot, lambda: "not sent" in screen_text(app))
