"""Filters, orders and searches of the samples."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from screens import screen_text, showing

from relax.errors import ArgumentError
from relax_tui.panes.choosing import ORDERS, Choice, text_matcher
from relax_tui.sources.base import SampleRow


def row(index, **known):
    given = {"group": 0, "status": "completed", "reward": 1.0, "length": 10}
    texts = {"prompt": "What is 1 + 1?", "response": "two"}
    return SampleRow(row=index, index=index, **{**given, **texts, **known})


ROWS = (
    row(0, reward=0.2, length=30, response="It is 12 + 7 (19)."),
    row(1, reward=None, status="truncated", flags=("LOOP", "TRUNC")),
    row(2, reward=math.nan, weight_versions=("3", "4")),
    row(3, reward=0.9, ref_max_abs=2e-3, response="[/x] Plus"),
)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("", [0, 1, 2, 3]),
        ("reward < 0.5", [0]),
        ("reward>=0.9", [3]),
        ("reward != 0.2", [2, 3]),
        ("status = TRUNCATED", [1]),
        ("status!=truncated length > 20", [0]),
        ("flag = loop", [1]),
        ("version = 4", [2]),
        ("verdict = fail", [3]),
        ("verdict != fail reward < 1", [0]),
        ("lp-ref > 1e-3", [3]),
        ("12 + 7 (19)", [0]),
        ("[/x]", [3]),
        ("plus|19", [0, 3]),
        ("plus reward > 0.5", [3]),
    ],
)
def test_what_is_left(wanted, left):
    kept = Choice.parse(wanted).arrange(ROWS, pointed=(3,))
    assert [sample.index for sample in kept] == left


def test_absent_ones_come_last_and_nan_first_in_both_directions():
    for order, wanted in (("+reward", [2, 0, 3, 1]), ("-reward", [2, 3, 0, 1])):
        arranged = Choice(order=order).arrange(ROWS, ())
        assert [sample.index for sample in arranged] == wanted
    assert all(Choice(order=order).arrange(ROWS, ()) for order, _, _ in ORDERS)


@pytest.mark.parametrize("wanted", ["rewrd < 1", "reward < much", "verdict = maybe"])
def test_a_condition_on_what_samples_do_not_have_is_refused(wanted):
    with pytest.raises(ArgumentError):
        Choice.parse(wanted)


def test_a_broken_expression_is_a_text():
    assert text_matcher("a(b")("xA(By")
    assert not text_matcher("a(b")("ab")


async def test_a_filter_holds_on_both_screens_until_it_is_taken_away(snapshots):
    snapshot = snapshots("finished")
    few = [r for r in snapshot.viewed.rows if r.reward and r.reward > 0.5]
    assert 0 < len(few) < len(snapshot.viewed.rows)
    async with showing(snapshot) as (app, pilot, _):
        await pilot.press("ampersand", *"reward", "greater_than_sign", *"0.5", "enter")
        assert f"{len(few)} of {len(snapshot.viewed.rows)} samples" in screen_text(app)
        responses = app.screen.query_one("#responses")
        assert {r.index for r in responses.order} == {r.index for r in few}
        await pilot.press("enter")
        await pilot.pause()
        samples = app.screen.query_one("#samples")
        assert samples.count() == len(few)
        await pilot.press("ampersand", *["backspace"] * 12, "enter")
        assert samples.count() == len(snapshot.viewed.rows)
        await pilot.press("q")
        await pilot.pause()
        assert app.screen.query_one("#responses").count() == len(snapshot.viewed.rows)


async def test_o_sorts_and_a_refused_filter_changes_nothing(snapshots):
    snapshot = snapshots("finished")
    async with showing(snapshot) as (app, pilot, _):
        place = next(n for n, order in enumerate(ORDERS) if order[0] == "-len")
        await pilot.press("O", *["j"] * place, "enter")
        lengths = [r.length for r in app.screen.query_one("#responses").order]
        assert lengths == sorted(lengths, reverse=True)
        assert "by len falling" in screen_text(app)
        assert "worst first" not in screen_text(app)
        await pilot.press("ampersand", *"nope=1", "enter")
        assert "not filtered: samples have no 'nope'" in screen_text(app)
        assert app.screen.query_one("#responses").count() == len(lengths)


async def test_a_place_that_is_asked_for_is_shown_whatever_the_filter(snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot) as (app, pilot, _):
        app.choice = Choice.parse("index = 0")
        place = snapshot.viewed.rows[5].index
        where = replace(snapshot.verdicts[0].verdict.where, sample_index=place)
        app.open_step(replace(where, rollout_id=snapshot.viewed.rollout_id))
        await pilot.pause()
        await pilot.pause()
        assert app.screen.query_one("#samples").selected.index == place
