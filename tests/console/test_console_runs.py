"""The list of runs: read beside the screen, and what a row says of a run."""

from __future__ import annotations

import asyncio

from screens import make_run, screen_text

from relax.events.types import Mode, RunStarted
from relax_tui.app import ConsoleApp
from relax_tui.runs import summarise


async def test_the_screen_stands_before_the_list_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for story in ("paused", "finished"):
        make_run(tmp_path / "runs" / story, story).close()
    app = ConsoleApp(lambda run_dir, app: None)
    async with app.run_test(size=(100, 30)) as pilot:
        for _ in range(200):
            await pilot.pause()
            if "finished" in screen_text(app):
                break
            assert "no run yet" not in screen_text(app)
            await asyncio.sleep(0.02)
        text = screen_text(app)
        assert "4 of 200" in text
        assert "PAUSED" in text or "paused" in text


def test_a_row_is_about_the_newest_attempt(tmp_path):
    run = make_run(tmp_path / "run", "paused")
    assert summarise(tmp_path / "run").place == "4/200"
    run.close()
    # Another attempt goes on at rollout 7 and has not reached its first stage.
    (first,) = (tmp_path / "run/events").iterdir()
    lines = first.read_bytes().splitlines(keepends=True)
    started = next(row for row in lines if b'"type":"run_started"' in row)
    again = started.replace(b'"start_rollout_id":0', b'"start_rollout_id":7')
    assert again != started
    (tmp_path / "run/events/a02-000.jsonl").write_bytes(lines[0] + again)
    assert summarise(tmp_path / "run").place == ""


def test_a_long_log_is_not_read_whole(tmp_path):
    run = make_run(tmp_path / "run", "paused")
    for _ in range(400):
        run.events.append(
            RunStarted(run_id="f00dcafe", name="x" * 900, mode=Mode.FULL, num_rollout=9)
        )
    run.pause(8, "train")
    run.close()
    summary = summarise(tmp_path / "run")
    assert (summary.place, summary.state) == ("8/9", "paused")
