"""The walk: what failed first, and Enter opens it; and looking back at a rollout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from screens import make_run, screen_text, settle, showing, snapshot_of

from relax.events.types import Stage
from relax_tui.panes.responses import pointed_at, worst_first
from relax_tui.panes.walk import walk_place
from relax_tui.screens.step import StepScreen
from relax_tui.sources.base import Liveness, PausedAt
from relax_tui.sources.run_folder import RunFolderSource


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A walk that stopped before the train step, its reference not the policy."""
    run_dir = tmp_path_factory.mktemp("failing") / "run"
    run = make_run(run_dir, "ref_mismatch")
    run.close()
    source = RunFolderSource(run_dir)
    source.view((1, 0))
    snapshot = source.collect()
    paused_now = Liveness.PAUSED
    now = replace(snapshot.now, liveness=paused_now, rollout_id=0, stage="train")
    paused = PausedAt(rollout_id=0, before="train", after="advantages", why="walk")
    return replace(snapshot, now=now, paused=paused, following=True)


async def test_enter_opens_the_place_that_the_failing_check_names(failing):
    place = walk_place(failing)
    assert (place.sample_index, place.position) == (5, 17)
    async with showing(failing, (80, 24)) as (app, pilot, _):
        assert "Enter sample 5, token t17" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot, failing)
        assert isinstance(app.screen, StepScreen)
        tokens = app.screen.query_one("#tokens")
        assert (tokens.row.index, tokens.cursor) == (5, 17)


async def test_enter_opens_what_a_person_moved_to(failing):
    async with showing(failing) as (app, pilot, _):
        await pilot.press("j", "j", "enter")
        await settle(app, pilot, failing)
        tokens = app.screen.query_one("#tokens")
        assert tokens.row.index == app.screen.query_one("#samples").order[2].index != 5


async def test_what_failed_is_first_among_checks_and_among_samples(failing):
    named, *others = pointed_at(failing)
    assert named == 5
    sizes = {row.index: row.ref_max_abs for row in failing.viewed.rows}
    # Behind the one that the verdict names: all that are unequal, by how much.
    found = [sizes[index] for index in others]
    assert found == sorted(found, reverse=True)
    assert {named, *others} == {index for index, size in sizes.items() if size}
    assert worst_first(failing.viewed.rows, (9, 5))[0].index == 9
    async with showing(failing, (80, 24)) as (app, _pilot, _):
        rows = screen_text(app).splitlines()
        statuses = [row.split()[0] for row in rows if row.startswith("   FAIL ")]
        assert statuses
        walk = [row for row in rows if row.startswith(("   FAIL ", "   PASS "))]
        assert walk == sorted(walk, key=lambda row: "PASS" in row)


async def test_a_healthy_walk_opens_the_selected_sample(snapshots):
    snapshot = snapshots("walk")
    assert walk_place(snapshot) is None
    async with showing(snapshot, (80, 24)) as (app, pilot, _):
        assert "Enter tokens" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, StepScreen)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_walk_leaves_room_for_the_responses(size, failing):
    async with showing(failing, size) as (app, _pilot, _):
        shown = screen_text(app).splitlines()
        begin = next(n for n, row in enumerate(shown) if "5 responses" in row)
        end = next(n for n, row in enumerate(shown) if "─ 6 sample" in row)
        assert end - begin >= (8 if size[1] >= 24 else 4)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_looking_back_every_pane_says_which_rollout(size, tmp_path):
    run = make_run(tmp_path / "run", "paused")
    run.close()
    source = RunFolderSource(tmp_path / "run")
    source.view((1, 1))
    snapshot = source.collect()
    async with showing(snapshot, size) as (app, pilot, _):
        text = screen_text(app)
        assert "VIEW OF ROLLOUT 1" in text.splitlines()[0]
        assert "responses · rollout 1 ·" in text
        if size[0] == 120:
            rows = {row[2:12].strip(): row for row in text.splitlines()}
            assert "rollout 1 " in rows["2 then ───"]
            assert "rollout 1 " in rows["3 stages ─"]
            assert "verdicts · rollout 1" in text
        else:
            assert "\nr1 reward" in text
        assert " r3 " not in text
        await pilot.press("t")
        assert "1 verdicts · rollout 1" in screen_text(app)


async def test_leaving_a_verdicts_tokens_the_view_is_as_before(tmp_path):
    snapshot = snapshot_of(tmp_path / "run", "ref_mismatch")
    async with showing(snapshot) as (_app, pilot, source):
        await pilot.press("t", "enter")
        assert source.asked == [(1, 0)]
        await pilot.press("q")
        assert source.asked == [(1, 0), None]


async def test_the_stuck_process_is_named_first(tmp_path):
    from relax.events.types import StageSlow

    run = make_run(tmp_path / "run", "paused")
    run.start(4, Stage.TRAIN)
    places = {
        "train-0": "distributed_c10d.py:2810 in all_reduce",
        "train-1": "drills.py:88 in hang",
    }
    run.events.append(
        StageSlow(rollout_id=4, stage=Stage.TRAIN, seconds=9.0, median_seconds=0.6,
                  places=places)
    )  # fmt: skip
    run.close()
    snapshot = RunFolderSource(tmp_path / "run").collect()
    async with showing(snapshot, (80, 24)) as (app, _pilot, _):
        alarm = next(r for r in screen_text(app).splitlines() if " SLOW " in r)
        assert "train: train-1: drills.py:88 in hang; train-0" in alarm
        assert "A abort generation" not in screen_text(app)


async def test_a_damaged_record_is_named_on_every_screen(tmp_path):
    import os

    run = make_run(tmp_path / "run", "finished")
    run.close()
    os.truncate(tmp_path / "run/steps/a01/000003/samples.arrow", 100)
    snapshot = RunFolderSource(tmp_path / "run").collect()
    async with showing(snapshot) as (app, pilot, _):
        for keys in ((), ("enter",), ("q", "t"), ("q", "L")):
            await pilot.press(*keys)
            text = " ".join(screen_text(app).split())
            assert "DAMAGED" in text
            assert "000003/samples.arrow: not a whole Arrow file" in text
        await pilot.press("q", "enter")
        assert "no sample is selected" not in screen_text(app)
        assert "damaged: see above" in screen_text(app)


async def test_an_incomplete_event_log_is_said(tmp_path, snapshots):
    told = ("3 lines of the event log were not readable",)
    snapshot = replace(snapshots("finished"), unread=told)
    async with showing(snapshot) as (app, pilot, _):
        assert " log?" in screen_text(app).splitlines()[0]
        await pilot.press("L")
        assert told[0] in screen_text(app)
        await pilot.press("q", "t")
        assert told[0] in screen_text(app)
    async with showing(snapshot, (160, 40)) as (app, _pilot, _):
        assert "event log incomplete: L" in screen_text(app).splitlines()[0]


async def test_the_conditions_in_force_are_in_the_status_strip(snapshots):
    stops = ("grad_norm > 10", "verdict:FAIL")
    snapshot = replace(snapshots("paused"), stop_conditions=stops)
    async with showing(snapshot, (160, 40)) as (app, _pilot, _):
        first = screen_text(app).splitlines()[0]
        assert "stops at grad_norm > 10, verdict:FAIL" in first
    async with showing(snapshot, (80, 24)) as (app, _pilot, _):
        assert "2 stops" in screen_text(app).splitlines()[0]
