"""Dialogs own their keys at once, show a refusal, and keep what was typed."""

from __future__ import annotations

import pytest
from screens import screen_text, settle, showing
from steered import steering, until
from textual import events

from relax.events.types import StopConditionsSet
from relax_tui.keymap import KEYS
from relax_tui.screens.dialogs import Dialog
from relax_tui.screens.entry import LineEdit, StopsDialog

NAMES = {" ": "space", ":": "colon", ">": "greater_than_sign", "\r": "enter",
         "_": "underscore", "[": "left_square_bracket"}  # fmt: skip


def type_blindly(app, text):
    """Puts keys into the app's queue without waiting, as a fast typist or tmux does."""
    for character in text:
        key = NAMES.get(character, character)
        app.post_message(events.Key(key, character if character != "\r" else "\r"))


async def test_keys_right_behind_b_go_to_the_dialog_and_not_to_the_run(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        # p, c, s, S, X and K would all act on the run.
        type_blindly(app, "bpcsSXKgrad > 1")
        await until(pilot, lambda: "add: pcsSXKgrad > 1" in screen_text(app))
        assert controller.asked == []
        assert isinstance(app.screen, StopsDialog)


async def test_a_whole_condition_typed_blindly_is_set_and_the_next_key_is_the_runs(
    tmp_path,
):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        type_blindly(app, "bgrad_norm > 10\r")
        await until(pilot, lambda: controller.asked)
        assert controller.asked[0].conditions == ("grad_norm > 10",)
        await until(pilot, lambda: not isinstance(app.screen, Dialog))
        type_blindly(app, "s")
        await until(pilot, lambda: len(controller.asked) == 2)
        assert controller.asked[1].kind == "step-stage"


async def test_a_confirmation_and_what_follows_it_act_in_order(tmp_path):
    async with steering(tmp_path, "generating") as (app, pilot, controller):
        type_blindly(app, "pyj")
        await until(pilot, lambda: controller.asked)
        assert controller.asked[0].kind == "pause"
        assert not isinstance(app.screen, Dialog)


@pytest.mark.parametrize("opener", ["b", "p", "slash", "colon", "Y"])
async def test_no_dialog_lets_a_key_through(opener, tmp_path):
    async with steering(tmp_path, "generating") as (app, pilot, controller):
        await pilot.press(opener)
        dialog = app.screen
        assert isinstance(dialog, Dialog)
        for key in KEYS:
            for name in key.keys:
                # Those that may end the dialog are pressed by other tests.
                if name not in {"enter", "escape", "q", "y", "n", "backspace"}:
                    await pilot.press(name)
        assert app.screen is dialog
        assert controller.asked == []


async def test_a_refusal_by_the_run_is_shown_in_the_dialog_and_the_text_stays(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        controller.refusal = "no metric grad_nrm; did you mean train/grad_norm?"
        await pilot.press("b", *"grad_nrm > 10", "enter")
        await until(pilot, lambda: "did you mean train/grad_norm?" in screen_text(app))
        assert isinstance(app.screen, StopsDialog)
        assert "add: grad_nrm > 10" in screen_text(app)
        controller.refusal = ""
        for _ in " > 10":
            await pilot.press("left")
        await pilot.press("backspace", "backspace", *"orm", "enter")
        await until(pilot, lambda: not isinstance(app.screen, Dialog))
        assert controller.asked[-1].conditions == ("grad_norm > 10",)
        assert "pauses when: grad_norm > 10" in screen_text(app)


async def test_a_text_that_is_no_condition_is_refused_before_it_is_sent(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        await pilot.press("b", *"3:trian", "enter")
        assert "refused" in screen_text(app)
        assert "use one of generate" in screen_text(app)
        assert "add: 3:trian" in screen_text(app)
        assert controller.asked == []


async def test_an_empty_entry_leaves_all_as_it_was(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        controller.run.events.append(StopConditionsSet(conditions=("3:train",)))
        await until(pilot, lambda: app.newest.stop_conditions)
        await pilot.press("b", "enter")
        assert "as they were" in screen_text(app)
        assert controller.asked == []


async def test_each_condition_in_force_is_listed_and_can_be_removed(tmp_path):
    in_force = ("3:train", "grad_norm > 10", "verdict:FAIL")
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        controller.run.events.append(StopConditionsSet(conditions=in_force))
        await until(pilot, lambda: "stops" in screen_text(app).splitlines()[0])
        await pilot.press("b")
        rows = screen_text(app).splitlines()
        assert [row.strip() for row in rows if row.strip() in in_force] == [*in_force]
        await pilot.press("up", "up", "delete")
        await until(pilot, lambda: controller.asked)
        assert controller.asked[0].conditions == ("3:train", "verdict:FAIL")
        await until(pilot, lambda: "removed: grad_norm > 10" in screen_text(app))
        await pilot.press("down", "down", *"reward < 1", "enter")
        await until(pilot, lambda: len(controller.asked) == 2)
        assert controller.asked[1].conditions == (
            "3:train",
            "verdict:FAIL",
            "reward < 1",
        )


async def test_conditions_that_another_console_sets_appear_in_an_open_dialog(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        await pilot.press("b")
        controller.run.events.append(StopConditionsSet(conditions=("7:reward",)))
        await until(pilot, lambda: "7:reward" in screen_text(app))


async def test_a_paste_goes_into_the_dialog_and_never_into_the_run(tmp_path):
    async with steering(tmp_path, "paused") as (app, pilot, controller):
        app.post_message(events.Paste("cccc"))
        await pilot.pause()
        assert controller.asked == []
        await pilot.press("b")
        app.post_message(events.Paste("verdict:FAIL\n"))
        await until(pilot, lambda: "add: verdict:FAIL" in screen_text(app))


@pytest.mark.parametrize("story", ["paused", "finished"])
async def test_search_says_what_it_found_in_words(story, snapshots):
    snapshot = snapshots(story)
    async with showing(snapshot) as (app, pilot, _):
        await settle(app, pilot, snapshot)
        await pilot.press("slash", *"zzzz", "enter")
        assert '"zzzz": nothing in responses holds it' in screen_text(app)
        await pilot.press("n")
        assert "nothing in responses holds it" in screen_text(app)


def test_a_line_is_edited_as_in_a_shell():
    line = LineEdit.holding("grad_norm > 10")
    for key, text, cursor in (
        ("home", "grad_norm > 10", 0),
        ("delete", "rad_norm > 10", 0),
        ("end", "rad_norm > 10", 13),
        ("ctrl+w", "rad_norm > ", 11),
        ("backspace", "rad_norm >", 10),
        ("left", "rad_norm >", 9),
        ("ctrl+k", "rad_norm ", 9),
        ("ctrl+u", "", 0),
    ):
        line = line.press(key, None)
        assert (line.text, line.cursor) == (text, cursor), key
    assert line.insert("a\x1b[31m\nb").text == "a [31m b"
    assert line.press("f5", None) is line
