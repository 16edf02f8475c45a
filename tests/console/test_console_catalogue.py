"""The Dumps screen: what it lists, verifies, opens and deletes, and that it says so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest
from dump_folder import dump_rollouts
from screens import SIZES, make_run, screen_text
from test_console_screens import compare

from relax.dump.catalogue import find_dumps
from relax_tui.app import ConsoleApp
from relax_tui.lines import BLANK
from relax_tui.sources.run_folder import RunFolderSource
from relax_tui.sources.scripted import ScriptedSource


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", "finished").close()
    dump_rollouts(tmp_path / "run" / "dumps", 2, 37)
    return tmp_path / "run"


@contextlib.asynccontextmanager
async def catalogue(run_dir: Path, size: tuple[int, int] = (120, 40)):
    """The app on a run's dumps: ``(app, pilot)``."""
    app = ConsoleApp(lambda folder, app: RunFolderSource(folder), run_dir=run_dir)
    async with app.run_test(size=size) as pilot:
        await until(app, pilot, "finished")
        await pilot.press("D")
        await until(app, pilot, "rollout kind")
        yield app, pilot


async def until(app: ConsoleApp, pilot, *words: str, gone: str = "") -> str:
    """The screen once it shows some words; workers and threads take what they take."""
    for _ in range(1500):
        await pilot.pause()
        text = screen_text(app)
        if all(word in text for word in words) and not (gone and gone in text):
            return text
        await asyncio.sleep(0.02)
    raise AssertionError(f"{words} not on the screen:\n{text}")


def damage(path: Path) -> None:
    """Changes one byte and not the size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_it_lists_the_runs_dumps_and_what_each_says(run_dir):
    async with catalogue(run_dir) as (app, pilot):
        text = await until(app, pilot, "37 rollout", "37 train", "2 rollout")
        assert "1 of 1 ranks" in text
        assert "attempt 1, rollout 2 (live)" in text
        await pilot.press("j", "j")
        await until(app, pilot, "attempt 1, rollout 37 (live)")


async def test_verifying_tells_whole_from_damaged(run_dir):
    damage(run_dir / "dumps" / "rollout_data" / "37.pt")
    async with catalogue(run_dir) as (app, pilot):
        await until(app, pilot, "37 rollout")
        await pilot.press("V")
        await until(app, pilot, "rollout dump of rollout 2: whole")
        await pilot.press("j", "j", "V")
        damaged = "rollout dump of rollout 37: DAMAGED"
        await until(app, pilot, damaged, "changed or is damaged")


async def test_deleting_asks_first_and_takes_the_whole_step(run_dir):
    async with catalogue(run_dir) as (app, pilot):
        await until(app, pilot, "37 rollout")
        await pilot.press("E")
        await until(app, pilot, "relax-tui dumps delete", "deleted for good")
        await pilot.press("enter")
        await until(app, pilot, "nothing was deleted")
        assert len(find_dumps(run_dir / "dumps")) == 4
        await pilot.press("E")
        await until(app, pilot, "deleted for good")
        await pilot.press("y")
        await until(app, pilot, "deleted 2 files", gone="2 rollout")
    left = find_dumps(run_dir / "dumps")
    assert [entry.rollout_id for entry in left] == [37, 37]


async def test_a_dump_opens_and_the_way_back_leads_to_the_run(run_dir):
    async with catalogue(run_dir) as (app, pilot):
        await until(app, pilot, "37 rollout")
        await pilot.press("G", "enter")
        await until(app, pilot, "READ-ONLY", "the answer is")
        await pilot.press("q")
        await until(app, pilot, "rollout kind")
        await pilot.press("q")
        await until(app, pilot, "finished", "4 of 200", gone="READ-ONLY")


async def test_another_folder_can_be_added(run_dir, tmp_path):
    dump_rollouts(tmp_path / "elsewhere", 5)
    async with catalogue(run_dir) as (app, pilot):
        await pilot.press("a", *"nowhere", "enter")
        await until(app, pilot, "nowhere: there is no such folder")
        await pilot.press("a")
        await pilot.pause()
        for character in str(tmp_path / "elsewhere"):
            app.screen.take_key(character, character)
        await pilot.press("enter")
        await until(app, pilot, "5 rollout", "37 rollout")


async def test_no_dump_says_how_to_get_one(tmp_path):
    make_run(tmp_path / "run", "finished").close()
    async with catalogue(tmp_path / "run") as (app, pilot):
        await until(app, pilot, "no dump yet: d writes one")
        await pilot.press("V", "E", "enter")
        await until(app, pilot, "no dump yet: d writes one")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_how_it_looks(size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    dump_rollouts(Path("dumps"), 2, 37)
    for path in Path("dumps").rglob("*.manifest.json"):
        # Command lines name this interpreter and this folder.
        path.write_text(json.dumps({**json.loads(path.read_text()), "replay": {}}))
    app = ConsoleApp(lambda folder, app: ScriptedSource(None))
    async with app.run_test(size=size) as pilot:
        await until(app, pilot, "no run yet")
        await pilot.press("D")
        await until(app, pilot, "37 rollout")
        await pilot.press("V")
        await until(app, pilot, "whole (")
        # How long it took is another number each time.
        app.tell(BLANK)
        await until(app, pilot, "whole, by the manifest's hashes", gone="whole (")
        compare(f"dumps-{size[0]}x{size[1]}", screen_text(app))
