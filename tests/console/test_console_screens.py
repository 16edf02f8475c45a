"""Screens as plain text at three sizes, and that none breaks at any size."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from screens import SIZES, screen_text, settle, showing
from test_console_text import HOSTILE

from relax_tui.sources.base import Notice, RunSnapshot
from relax_tui.terminal import Capabilities
from relax_tui.theme import ASCII, Colours, Look

GOLDENS = Path(__file__).parent.parent / "goldens" / "screens"
STORIES = (
    "generating",
    "paused",
    "walk",
    "lost",
    "finished",
    "ref_mismatch",
    "starting",
)
SMALL = ((100, 30), (80, 15), (60, 15), (40, 10), (20, 5), (10, 3), (3, 2))


def compare(name: str, text: str) -> None:
    path = GOLDENS / f"{name}.txt"
    if "RELAX_WRITE_GOLDENS" in os.environ:
        path.write_text(text)
    assert path.exists(), f"{path} is missing: RELAX_WRITE_GOLDENS=1 writes it"
    assert text == path.read_text(), f"{path} differs: look at it, then write it anew"


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("story", STORIES)
async def test_live(story, size, snapshots):
    snapshot = snapshots(story)
    async with showing(snapshot, size) as (app, _pilot, _):
        compare(f"live-{story}-{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("step", ["enter"]),
        ("flow", ["enter", "f"]),
        ("triage", ["t"]),
        ("help", ["question_mark"]),
        ("confirm", ["p"]),
        ("stop-when", ["b"]),
        ("subtract", ["enter", "equals_sign"]),
    ],
)
async def test_other_screens(name, keys, size, snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot, size) as (app, pilot, _):
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        compare(f"{name}-{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.parametrize("size", SMALL, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_no_size_breaks_a_screen(size, snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot, size) as (app, pilot, _):
        for key in ("z", "z", "tab", "enter", "f", "f", "q", "t", "q", "question_mark"):
            await pilot.press(key)
        await pilot.resize_terminal(120, 40)
        await pilot.press("q")
        await pilot.resize_terminal(*size)
        await pilot.pause()
        rows = screen_text(app).splitlines()
        assert len(rows) == size[1]
        assert any(rows)


async def test_what_is_wrong_comes_first(snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot) as (app, _pilot, _):
        rows = screen_text(app).splitlines()
        verdicts = [row for row in rows if " FAIL " in row or " PASS " in row]
        assert "FAIL" in verdicts[0]
        responses = next(n for n, row in enumerate(rows) if "worst first" in row)
        assert "LOOP" in rows[responses + 2]


async def test_hostile_text_reaches_no_screen(snapshots):
    snapshot = snapshots("paused")
    view = snapshot.viewed
    rows = tuple(
        replace(row, response=text, prompt=text, label=text, status=text, failure=text)
        for row, text in zip(view.rows, HOSTILE * 2, strict=False)
    )
    header = replace(snapshot.header, name="\x1b]0;evil\x07")
    hostile = replace(
        snapshot, header=header, viewed=replace(view, version=99, rows=rows)
    )
    async with showing(hostile) as (app, pilot, _):
        for key in ("j", "j", "j", "l", "enter", "j", "q", "t", "q"):
            await pilot.press(key)
            text = screen_text(app)
            dangerous = [c for c in text if not c.isprintable() and c != "\n"]
            assert not dangerous
            assert "\u202e" not in text


async def test_a_lone_surrogate_is_copied_as_an_escape(snapshots, monkeypatch):
    async with showing(snapshots("paused")) as (app, _pilot, _source):
        copied = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        app.copy_out("a\ud800b", "response")
        assert copied == ["a\\ud800b"]
        assert "response" in screen_text(app)


async def test_ascii_only_means_ascii_only(snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot) as (app, pilot, _source):
        app.look = Look(colours=Colours.NONE, glyphs=ASCII)
        for view in app.screen.query("LineView"):
            view.look = app.look
            view.redraw()
        await pilot.pause()
        assert screen_text(app).isascii()


async def test_a_frozen_view_stays_and_says_so(snapshots):
    first = snapshots("paused")
    async with showing(first) as (app, pilot, source):
        await pilot.press("space")
        before = screen_text(app)
        assert "VIEW FROZEN" in before
        later = snapshots("finished")
        source.post(later)
        await pilot.pause(0.1)
        assert screen_text(app) == before
        await pilot.press("space")
        await settle(app, pilot, later)
        assert "finished" in screen_text(app)
        assert "FROZEN" not in screen_text(app)


async def test_brackets_ask_for_other_rollouts(snapshots):
    snapshot = snapshots("paused")
    async with showing(snapshot) as (_app, pilot, source):
        await pilot.press("left_square_bracket")
        assert source.asked == [(1, 2)]
        await pilot.press("right_square_bracket")
        assert source.asked[-1] is None


async def test_search_marks_and_moves(snapshots):
    snapshot = snapshots("finished")
    async with showing(snapshot) as (app, pilot, _):
        wanted = app.screen.query_one("#responses").order[5].response[:6]
        await pilot.press("slash", *wanted, "enter")
        await pilot.pause()
        responses = app.screen.query_one("#responses")
        assert responses.matches
        assert responses.cursor in responses.matches
        assert "n and N go from one to the next" in screen_text(app)


async def test_unequal_tokens_are_walked(snapshots):
    snapshot = snapshots("ref_mismatch")
    async with showing(snapshot) as (app, pilot, _):
        await pilot.press("enter")
        tokens = app.screen.query_one("#tokens")
        await pilot.press("exclamation_mark")
        assert tokens.cursor == tokens.counts.worst
        await pilot.press("g", "u")
        assert tokens.cursor == 1
        await pilot.press("U")
        assert tokens.cursor == 0


async def test_an_empty_run_says_what_it_waits_for():
    async with showing(RunSnapshot()) as (app, _pilot, _):
        text = screen_text(app)
        assert "starting" in text
        assert "not yet" in text


async def test_columns_that_are_not_there_are_not_zero(snapshots):
    snapshot = snapshots("generating")
    async with showing(snapshot) as (app, pilot, _):
        await pilot.press("enter")
        text = screen_text(app)
        assert "log_probs is absent: not yet: its stage has not run" in text


async def test_only_what_changed_is_repainted(snapshots, monkeypatch):
    snapshot = snapshots("paused")
    async with showing(snapshot) as (_app, pilot, source):
        from relax_tui.widgets.line_view import LineView

        marked = []
        monkeypatch.setattr(
            LineView, "refresh", lambda self, *regions, **_: marked.append(regions)
        )
        notice = Notice(wall=0.0, word="DUMP", text="shown by triage only")
        source.post(replace(snapshot, notices=(notice,)))
        await pilot.pause(0.1)
        assert marked == []
        now = replace(snapshot.now, weights_version=5)
        source.post(replace(snapshot, now=now))
        await pilot.pause(0.1)
        assert len(marked) == 1
        ((region,),) = marked
        assert region.width == 1
        assert region.height == 1


def test_capabilities_are_plain_data():
    capabilities = Capabilities(headless="", look=Look(), tmux=False, pager="less")
    assert capabilities.look.style("bad").bold
