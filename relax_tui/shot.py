"""A screen of the console as text or SVG, without a terminal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relax.errors import ArgumentError, RelaxError
from relax.records.atomic import write_atomically
from relax_tui.printing import quoted
from relax_tui.theme import ASCII, UNICODE, Colours, Glyphs, Look

if TYPE_CHECKING:
    from relax_tui.app import ConsoleApp
    from relax_tui.sources.base import RunSource

SMALLEST: Final = (20, 5)
LARGEST: Final = (400, 200)
LOOKS: Final = 600
PACE: Final = 0.05
"""Seconds between two looks whether what was asked for is on the screen."""


class NothingShown(RelaxError):
    """The run was not on the screen in time."""

    code = "nothing-shown"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be drawn.

    Attributes:
        paths: A run folder of ours, or another engine's files.
        ours: Which of the two.
        keys: Keys to press, by Textual's names, one after the other.
        size: ``COLUMNSxROWS``.
        out: A ``.svg`` or ``.txt`` file; None for the text alone.
    """

    paths: tuple[Path, ...]
    ours: bool
    keys: tuple[str, ...] = ()
    size: str = "120x40"
    out: Path | None = None

    def source(self) -> RunSource:
        """Reads it; what is pressed can give no command to a run."""
        # What reads other engines' dumps is not needed for a run of ours.
        from relax_tui.sources.foreign import ForeignSource  # noqa: PLC0415
        from relax_tui.sources.run_folder import RunFolderSource  # noqa: PLC0415

        if self.ours:
            return RunFolderSource(self.paths[0], read_only="a shot only looks")
        return ForeignSource(self.paths)


def size_of(words: str) -> tuple[int, int]:
    """``120x40`` as columns and rows.

    Raises:
        ArgumentError: It is no size, or no console can be drawn in it.
    """
    columns, _, rows = words.lower().partition("x")
    if not (columns.isdecimal() and rows.isdecimal()):
        raise ArgumentError(f"{words!r} is no size", hint="COLUMNSxROWS, as in 80x24")
    size = int(columns), int(rows)
    for given, low, high in zip(size, SMALLEST, LARGEST, strict=True):
        if not low <= given <= high:
            limits = f"{SMALLEST[0]}x{SMALLEST[1]} to {LARGEST[0]}x{LARGEST[1]}"
            raise ArgumentError(f"{words!r} is no size to draw in", hint=limits)
    return size


def take_shot(wanted: Wanted, *, ascii_only: bool = False) -> str:
    """Draws a run, presses keys, and keeps what is on the screen.

    Args:
        wanted: What is to be drawn.
        ascii_only: With ASCII characters only.

    Returns:
        What to print: the rows of the screen, or which file was written.

    Raises:
        ArgumentError: The size or the name of the file is not right.
        NothingShown: The run could not be shown in half a minute.
    """
    out, size = wanted.out, size_of(wanted.size)
    if out is not None and out.suffix not in (".svg", ".txt"):
        raise ArgumentError(f"{out}: neither .svg nor .txt", hint="name the file so")
    text, svg = asyncio.run(_drawn(wanted, size, ASCII if ascii_only else UNICODE))
    if out is None:
        return text
    content = svg if out.suffix == ".svg" else text
    write_atomically(out, content.encode("utf-8", "backslashreplace"))
    return f"written: {quoted(str(out))}\n"


async def _drawn(
    wanted: Wanted, size: tuple[int, int], glyphs: Glyphs
) -> tuple[str, str]:
    # Textual takes a third of a second; the other commands do without it.
    from relax_tui.app import ConsoleApp  # noqa: PLC0415

    path = wanted.paths[0]
    app = ConsoleApp(lambda _dir, _app: wanted.source(), run_dir=path)
    app.look = Look(colours=Colours.RICH, glyphs=glyphs)
    async with app.run_test(size=size) as pilot:
        for _ in range(LOOKS):
            if app.shown.header.name or app.shown.viewed is not None:
                break
            await pilot.pause(PACE)
        else:
            raise NothingShown("it was not read in time", where=str(path))
        for key in wanted.keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause(PACE)
        return _rows(app), app.export_screenshot(title="relax-tui")


def _rows(app: ConsoleApp) -> str:
    # Textual has no public name for the rows of a screen.
    strips = app.screen._compositor.render_strips()
    rows = ("".join(segment.text for segment in strip) for strip in strips)
    return "".join(f"{row.rstrip()}\n" for row in rows)
