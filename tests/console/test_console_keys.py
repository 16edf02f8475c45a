"""The one key table: every key is bound, does something visible, and is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from screens import screen_text, showing

import relax_tui
from relax_tui.app import ConsoleApp
from relax_tui.commands import COMMANDS
from relax_tui.keymap import BY_ID, DIALOG_KEYS, KEYS, Where, footer_keys
from relax_tui.screens.help import key_rows, key_sheet
from relax_tui.screens.live import LiveScreen
from relax_tui.screens.log import LogScreen
from relax_tui.screens.runs import RunsScreen
from relax_tui.screens.step import StepScreen
from relax_tui.screens.triage import TriageScreen

SCREENS = (LiveScreen, StepScreen, TriageScreen, LogScreen, RunsScreen)
HELP = Path(relax_tui.__file__).parent / "help"
QUITS = ("back", "leave")
OPENS_A_PAGER = ("pager",)


def test_ids_and_keys_are_unique():
    assert len({key.id for key in KEYS}) == len(KEYS)
    names = [name for key in KEYS for name in key.keys]
    assert len(set(names)) == len(names)


def test_the_keys_of_the_design_are_there():
    wanted = set("?:/nNjkhlgGqz123456pcsSbdrmtvx=uU!fyYow[]")
    shown = {key.display for key in KEYS} | {key.keys[0] for key in KEYS}
    names = {"question_mark": "?", "colon": ":", "slash": "/", "equals_sign": "=",
             "exclamation_mark": "!", "left_square_bracket": "[",
             "right_square_bracket": "]"}  # fmt: skip
    shown |= {names.get(key.keys[0], "") for key in KEYS}
    assert wanted <= shown
    bound = {name for key in KEYS for name in key.keys}
    assert {"enter", "escape", "tab", "space"} <= bound


def test_plain_keys_carry_every_function():
    modified = {key.id for key in KEYS if "+" in key.keys[0]}
    # Both have a plain way: tab goes round, q goes back.
    assert modified == {"previous_pane", "leave"}


def test_confirming_never_uses_the_key_that_opened():
    asking = [BY_ID[key_id] for key_id, c in COMMANDS.items() if c.asks]
    assert asking
    for key in asking:
        assert not set(key.keys) & set(DIALOG_KEYS)


def test_bindings_come_from_the_table():
    bound = {binding.id: binding for binding in ConsoleApp.BINDINGS}
    assert set(bound) == {key.id for key in KEYS}
    assert all(bound[key.id].key == ",".join(key.keys) for key in KEYS)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda s: s.__name__)
def test_a_screen_implements_what_the_table_says(screen):
    for key in KEYS:
        if screen.WHERE not in key.where or key.later or key.id.startswith("pane_"):
            continue
        assert callable(getattr(screen, f"do_{key.id}", None)), key.id


@pytest.mark.parametrize("where", list(Where))
def test_the_footer_ends_with_help(where):
    assert "help" in [key.id for key in footer_keys(where)]
    text = "\n".join("".join(s.text for s in row) for row in key_rows(where, 100))
    for key in KEYS:
        assert re.search(re.escape(key.help.split(".")[0][:30]), text) or (
            key.id.startswith("pane_")
        )


@pytest.mark.parametrize("story", ["lost", "finished"])
async def test_the_footer_of_an_ended_run_offers_no_orders(story, snapshots):
    async with showing(snapshots(story)) as (app, _, _):
        footer = screen_text(app).splitlines()[-1]
    assert footer.endswith("? help")
    for key_id in ("dump", "replay", "mode", "pause", "continue"):
        assert f" {BY_ID[key_id].display} {BY_ID[key_id].label} " not in footer


@pytest.fixture(scope="module")
def paused(snapshots):
    return snapshots("paused")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.id)
async def test_every_key_does_something_visible(key, paused):
    if key.id in OPENS_A_PAGER:
        pytest.skip("needs a terminal: tests/terminal presses it")
    async with showing(paused) as (app, pilot, _source):
        if Where.LIVE not in key.where:
            await pilot.press("enter")
        before = screen_text(app)
        await pilot.press(key.keys[0])
        await pilot.pause(0.05)
        if key.id in QUITS:
            assert not app.is_running or app._exit
            return
        assert screen_text(app) != before, f"{key.id}: nothing happened"
        if key.later:
            assert "not available yet" in screen_text(app)


async def test_a_key_of_another_screen_says_where_it_works(paused):
    async with showing(paused) as (app, pilot, _):
        await pilot.press("u")
        assert "works on: compare, step" in screen_text(app)


def test_the_key_sheet_is_up_to_date():
    path = HELP / "keys.md"
    assert path.read_text() == key_sheet(), (
        f"{path} is stale: python -m relax_tui.screens.help writes it"
    )
