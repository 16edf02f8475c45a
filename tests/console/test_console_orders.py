"""`d`, `r` and `m`: chosen, shown whole, confirmed, and sent as an order."""

from __future__ import annotations

import pytest
from screens import screen_text
from steered import steering, until

from relax.control.orders import DumpOrder, ModeOrder, ReplayKind, ReplayOrder
from relax.events.types import CommandKind, CommandPhase, Mode

CASES = [
    (("d", "enter", "y"), CommandKind.DUMP, DumpOrder()),
    (("d", "j", "enter", "y"), CommandKind.DUMP, DumpOrder(with_weights=True)),
    (("r", "enter", "y"), CommandKind.REPLAY, ReplayOrder()),
    (("r", "j", "enter", "y"), CommandKind.REPLAY, ReplayOrder(repeat=3)),
    (
        ("r", "j", "j", "enter", "y"),
        CommandKind.REPLAY,
        ReplayOrder(kind=ReplayKind.REWARD),
    ),
    (("m", "enter", "y"), CommandKind.MODE, ModeOrder(mode=Mode.ROLLOUT_ONLY)),
    (
        ("m", "j", "j", "j", "enter", "y"),
        CommandKind.MODE,
        ModeOrder(mode=Mode.FULL, keep=True),
    ),
]


@pytest.mark.parametrize(("keys", "kind", "order"), CASES)
async def test_an_order_is_sent_as_it_was_confirmed(tmp_path, keys, kind, order):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        await pilot.press(*keys[:-1])
        assert f"relax-tui {kind} " in screen_text(app)
        assert controller.asked == []
        await pilot.press(keys[-1])
        await until(pilot, lambda: controller.asked)
        (request,) = controller.asked
        assert (request.kind, request.order) == (kind, order)
        controller.say(request, CommandPhase.DONE, reason="to /dumps", seconds=1.5)
        await until(pilot, lambda: "done in 1.5 s: to /dumps" in screen_text(app))


async def test_what_is_not_confirmed_is_not_sent(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        for key in ("d", "r", "m"):
            await pilot.press(key, "enter", "enter")
            await until(pilot, lambda: "not sent" in screen_text(app))
            await pilot.press(key, "escape")
        assert controller.asked == []


async def test_the_rollout_that_is_looked_at_is_the_one(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: not app.shown.following)
        viewed = app.shown.viewed.rollout_id
        await pilot.press("d", "enter", "y")
        await until(pilot, lambda: controller.asked)
        assert controller.asked[0].order == DumpOrder(rollout_id=viewed)


async def test_a_read_only_console_says_why_not(tmp_path):
    async with steering(tmp_path, "paused", read_only="asked for") as (
        app,
        pilot,
        controller,
    ):
        for key in ("d", "r", "m"):
            await pilot.press(key)
            assert "read-only" in screen_text(app)
        assert controller.asked == []
