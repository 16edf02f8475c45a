"""The console on hostile data, on a real terminal: every screen, pane and dialog.

Run as ``hostile_console.py RUN_DIR STRINGS SEED``: it walks the console with fresh
hostile snapshots until so many strings were shown, and looks at each screen: as many
rows as the terminal has, each of them as wide, nothing in them that is not printable.
What reaches the terminal is for the one that reads it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "console"))

from hostile import Hostile
from rich.cells import cell_len
from screens import snapshot_of
from textual import events

from relax_tui.app import ConsoleApp
from relax_tui.lines import Span, line
from relax_tui.printing import say
from relax_tui.report import report
from relax_tui.screens.dialogs import ConfirmDialog, TextDialog
from relax_tui.screens.entry import EntryDialog
from relax_tui.screens.live import LiveScreen
from relax_tui.sources.scripted import ScriptedSource
from relax_tui.terminal import Capabilities
from relax_tui.text import visible
from relax_tui.theme import UNICODE, Colours, Look

STORIES = ("ref_mismatch", "lost", "walk", "generating", "paused")
WALKS = (
    ("j", "tab", "G", "z", "z", "tab", "j", "k", "1", "1"),
    ("enter", "exclamation_mark", "u", "f", "G", "f", "B", "l", "tab", "G", "q"),
    ("t", "j", "tab", "G", "y", "q"),
    ("L", "G", "g", "w", "q"),
    ("colon", "x", "escape", "Y", "j", "escape", "y"),
    ("b", "escape", "d", "escape", "r", "escape", "m", "escape", "p", "escape"),
    ("question_mark", "G", "q", "space", "space", "R", "j", "q"),
)


class Walk:
    """Walks a console through everything it can show.

    Args:
        run_dir: A scratch folder.
        strings: Hostile strings to show before it ends.
        seed: Of their choice.
    """

    def __init__(self, run_dir: Path, strings: int, seed: int) -> None:
        self.hostile, self.strings = Hostile(seed), strings
        self.run_dir = run_dir
        self.stories = [snapshot_of(run_dir / story, story) for story in STORIES]
        self.source = ScriptedSource(None)
        look = Look(colours=Colours.RICH, glyphs=UNICODE)
        self.app = ConsoleApp(
            lambda run_dir, app: self.source,
            run_dir=run_dir,
            capabilities=Capabilities(headless="", look=look, tmux=False, pager="cat"),
        )

    async def drive(self, _pilot) -> None:
        """Shows hostile snapshots, one after the other, on every screen."""
        round_ = 0
        while self.hostile.made < self.strings:
            log = self.run_dir / "logs" / "engine.log"
            log.parent.mkdir(exist_ok=True)
            log.write_bytes(b"\n".join(self.hostile.bytes() for _ in range(40)))
            story = self.stories[round_ % len(self.stories)]
            story = self.hostile.snapshot(story, round_ + 1)
            for keys in (WALKS[round_ % len(WALKS)], WALKS[(round_ + 3) % len(WALKS)]):
                self.source.post(story)
                await self.taken()
                for key in keys:
                    leaving = key in ("q", "escape")
                    if leaving and isinstance(self.app.screen, LiveScreen):
                        continue  # nothing was opened: it would leave the console
                    await self.press(key)
                    await self.look()
            await self.say_things()
            text = report(story, glyphs=UNICODE)
            assert visible(text.replace("\n", "")) == text.replace("\n", "")
            round_ += 1
        self.app.exit()

    async def say_things(self) -> None:
        """Messages, dialogs and a search with hostile words."""
        text = self.hostile.text
        self.app.tell(line(Span(text())))
        await self.open(ConfirmDialog(title=text(), effect=text(), command=text()))
        await self.press("n")
        await self.open(
            TextDialog(title=text(), content=text(), copy=self.app.copy_out)
        )
        await self.press("G", "y", "q", "slash")
        if isinstance(self.app.screen, EntryDialog):  # the focused pane is a list
            self.app.screen.take_paste(text()[:2000])
            await self.look()
            await self.press("enter", "n")
        await self.look()

    async def press(self, *keys: str) -> None:
        """Types, and waits until the console has taken the keys.

        The pilot's own `press` waits for every widget of the screen in front, also for
        those that the key has just removed.
        """
        for key in keys:
            self.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await self.taken()

    async def taken(self) -> None:
        """Waits until the app has done what it got, and what came of that."""
        for _ in range(2):
            done = asyncio.Event()
            self.app.call_later(done.set)
            # A console that has crashed answers nothing.
            await asyncio.wait_for(done.wait(), 60)

    async def open(self, dialog) -> None:
        """Opens a dialog as a key would, and looks at it."""
        self.app.call_later(self.app.open_screen, dialog)
        await self.taken()
        assert self.app.screen is dialog
        await self.look()

    async def look(self) -> None:
        """The screen is whole and holds nothing that a terminal obeys."""
        width, height = self.app.size
        for _ in range(1000):
            strips = self.app.screen._compositor.render_strips()
            if strips:
                break
            await asyncio.sleep(0)  # the screen was asked for, and is not laid out yet
        rows = ["".join(segment.text for segment in strip) for strip in strips]
        assert len(rows) == height, f"{len(rows)} rows of {height}: {self.app.screen}"
        for row in rows:
            assert cell_len(row) == width, f"{cell_len(row)} cells: {row!r}"
            assert visible(row) == row, repr(row)


def main() -> None:
    """Walks; the number of strings is printed when the terminal is given back."""
    run_dir, strings, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    walk = Walk(run_dir, strings, seed)
    walk.app.run(auto_pilot=walk.drive, mouse=False)
    if walk.app.return_code:
        raise SystemExit(walk.app.return_code)
    say(f"{walk.hostile.made} strings shown")


if __name__ == "__main__":
    main()
