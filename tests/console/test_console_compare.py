"""Compare: two rollouts or runs side by side, from the first place they differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from screens import SIZES, make_run, screen_text, showing, snapshot_of
from test_console_screens import compare as compare_golden

from relax.errors import ArgumentError
from relax.triage.evidence import RolloutEvidence
from relax_tui.checking.aligned import aligned_samples
from relax_tui.checking.difference import compare
from relax_tui.checking.difference_types import Difference
from relax_tui.comparing import Side, side_of
from relax_tui.panes.comparison import AlignedPane, ComparisonPane
from relax_tui.screens.compare import CompareScreen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs: the first rollout of the second has a reference that is off."""
    folder = tmp_path_factory.mktemp("compare")
    make_run(folder / "a", "paused").close()
    make_run(folder / "b", "ref_mismatch").close()
    return folder


async def compared(app, pilot) -> tuple[ComparisonPane, AlignedPane]:
    """The panes, once the comparison is there."""
    for _ in range(2000):
        await pilot.pause(0.01)
        panes = app.screen.query(ComparisonPane)
        if panes and panes.first().found is not None:
            break
    await pilot.pause()
    return app.screen.query_one(ComparisonPane), app.screen.query_one(AlignedPane)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_two_rollouts_of_a_run(size, folder, monkeypatch):
    monkeypatch.chdir(folder)
    async with showing(None, size) as (app, pilot, _):
        sides = Side(path=Path("a"), rollout=1), Side(path=Path("b"), rollout=2)
        app.open_screen(CompareScreen(*sides))
        await compared(app, pilot)
        compare_golden(f"compare-{size[0]}x{size[1]}", screen_text(app))


async def test_c_compares_with_the_rollout_before_and_u_walks(tmp_path):
    snapshot = snapshot_of(tmp_path / "run", "paused")
    snapshot = _at(snapshot, tmp_path / "run")
    async with showing(snapshot) as (app, pilot, _):
        await pilot.press("C", "enter")
        differences, tokens = await compared(app, pilot)
        assert differences.found.rollouts == (2, 3)
        first = differences.found.first_tokens
        assert tokens.sample.sample == first.sample
        assert tokens.sample.start + tokens.cursor <= first.position
        await pilot.press("g", "u")
        cursor = tokens.cursor
        ids_a, ids_b = tokens.sample.a.ids, tokens.sample.b.ids
        gap = tokens.sample.a.columns["log_probs"][cursor]
        assert ids_a[cursor] != ids_b[cursor] or gap
        await pilot.press("l")
        assert tokens.chosen == 1
        await pilot.press("h", "h")
        assert "is the last one this way" in screen_text(app)
        await pilot.press("q")
        assert not isinstance(app.screen, CompareScreen)


async def test_what_cannot_be_compared_is_said(tmp_path):
    snapshot = _at(snapshot_of(tmp_path / "run", "paused"), tmp_path / "run")
    async with showing(snapshot) as (app, pilot, _):
        await pilot.press("C", "backspace", *"99", "enter")
        for _ in range(2000):
            await pilot.pause(0.01)
            if "not compared" in screen_text(app):
                break
        assert "has no rollout 99" in screen_text(app)
        await pilot.press("q", "C", "backspace", *"nope", "enter")
        assert "not compared: " in screen_text(app)
        assert not isinstance(app.screen, CompareScreen)


def _at(snapshot, run_dir):
    from dataclasses import replace

    return replace(snapshot, header=replace(snapshot.header, run_dir=str(run_dir)))


def test_a_comparison_survives_json(folder):
    found = compare(folder / "a", folder / "b", aligned=4)
    assert found.samples
    assert Difference.from_json(found.to_json()) == found


def test_sides_are_named_by_rollout_run_or_file(tmp_path):
    assert side_of("36", "runs/x") == Side(path=Path("runs/x"), rollout=36)
    file = tmp_path / "0.pt"
    file.touch()
    assert side_of(str(file), "") == Side(path=file)
    assert side_of(f"{file}:3", "") == Side(path=file, rollout=3)
    with pytest.raises(ArgumentError, match="nothing was named"):
        side_of("  ", "runs/x")


def evidence(tokens, log_probs):
    columns = {
        "prompt": ["p"] * len(tokens),
        "tokens": [np.array([9, *row], np.int64) for row in tokens],
        "response_length": [len(row) for row in tokens],
        "log_probs": [np.array(row, np.float32) for row in log_probs],
        "sample_index": list(range(len(tokens))),
    }
    return RolloutEvidence(rollout_id=0, columns=columns)


def test_samples_that_differ_in_tokens_come_first_then_the_largest_log_prob():
    a = evidence([[1, 2, 3]] * 4, [[-1, -1, -1]] * 4)
    b = evidence(
        [[1, 2, 3], [1, 2, 3], [1, 2], [1, 2, 3]],
        [[-1, -1, -1], [-1, -1.5, -1], [-1, -1], [-1, np.nan, -1]],
    )
    pairs = [(n, n) for n in range(4)]
    found = aligned_samples(a, b, pairs, [None, None], most=9)
    assert [sample.sample for sample in found] == [2, 3, 1]
    assert [sample.first for sample in found] == [2, None, None]
    assert [sample.worst for sample in found] == [None, np.inf, 0.5]
    assert found[0].b.ids == (1, 2)
