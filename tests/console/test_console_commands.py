"""Commands: what is asked, what is sent, what became of it; over a real socket."""

from __future__ import annotations

from dataclasses import replace

from screens import screen_text
from steered import steering, until

from relax.control.run_folder import read_run_info, write_run_info
from relax.events.types import CommandPhase


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
