"""Helpers of the console's tests: snapshots of scripted runs, screens as text."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from scripted_run import Script, ScriptedRun

from relax.events.types import Stage
from relax_tui.app import ConsoleApp
from relax_tui.sources.base import RunSnapshot
from relax_tui.sources.run_folder import RunFolderSource
from relax_tui.sources.scripted import ScriptedSource

SINCE = 1_800_000_000.0
SIZES = ((120, 40), (80, 24), (60, 20))


def make_run(run_dir: Path, story: str) -> ScriptedRun:
    """A run folder in one of a few situations."""
    script = Script(
        ref_noise=1e-3 if story == "ref_mismatch" else 0.0,
        pid=0 if story == "lost" else os.getpid(),
    )
    run = ScriptedRun(run_dir, script).open()
    if story == "walk":
        run.rollout(0, until=Stage.TRAIN)
        run.pause(0, Stage.TRAIN, after=Stage.ADVANTAGES, why="walk")
    elif story != "starting":
        for rollout_id in range(4):
            run.rollout(rollout_id)
    if story == "generating":
        run.generating(4, 7).__exit__(None, None, None)
    if story == "paused":
        run.pause(4, Stage.GENERATE, after=Stage.UPDATE_WEIGHTS)
    if story == "finished":
        run.finish(4)
    run.flush()
    return run


def snapshot_of(run_dir: Path, story: str) -> RunSnapshot:
    """A snapshot of such a run, with everything that depends on the clock fixed."""
    run = make_run(run_dir, story)
    snapshot = RunFolderSource(run_dir).collect()
    run.close()
    now = snapshot.now
    if now.liveness.ended or now.liveness == "paused":
        now = replace(now, since=SINCE)
    if now.data_age:
        now = replace(now, data_age="now")
    if now.stage_age:
        now = replace(now, stage_age="1 s")
    if "driver pid" in now.detail:
        now = replace(now, detail="driver pid 4711 on login1 is gone")
    header = replace(snapshot.header, run_dir="runs/tiny-arith-f00d")
    again = snapshot.again
    if again is not None:
        words = "relax-tui run --run-dir runs/tiny-arith-f00d -- --config run.yaml"
        again = replace(again, command=words)
    return replace(snapshot, now=now, header=header, again=again)


@asynccontextmanager
async def showing(snapshot: RunSnapshot | None, size: tuple[int, int] = (120, 40)):
    """The app on a scripted source: ``(app, pilot, source)``."""
    source = ScriptedSource(snapshot)
    app = ConsoleApp(lambda run_dir, app: source, run_dir=Path("scripted"))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot, snapshot)
        yield app, pilot, source


async def settle(app, pilot, snapshot) -> None:
    """Waits until the snapshot is drawn."""
    for _ in range(100):
        await pilot.pause()
        if snapshot is None or app.shown == snapshot:
            break
    await pilot.pause()


def screen_text(app: ConsoleApp) -> str:
    """What is on the screen, without colours."""
    rows = app.screen._compositor.render_strips()
    return "\n".join("".join(s.text for s in row).rstrip() for row in rows) + "\n"
