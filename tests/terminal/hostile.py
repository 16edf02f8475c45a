"""Hostile strings, and snapshots in which every text is one.

Everything a model, a log, a file name or another engine may hand to the console: what a
terminal obeys, what markup parsers read, what disagrees about its width.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from relax_tui.sources.base import RunSnapshot, SampleRow, SampleTokens
from relax_tui.sources.scripted import ScriptedTokens

PIECES = (
    "\x1b[2J", "\x1b[31m", "\x1b[?1049l", "\x1b[?25l", "\x1b]0;owned\x07",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "\x1b]52;c;b3duZWQ=\x07",
    "\x1bP$q\x1b\\",
    "\x1bc", "\x1b", "\x9b31m", "\x9d0;owned\x9c", "\x90q\x9c", "\x07", "\x08" * 9,
    "\r", "\n", "\r\n", "\x0b\x0c", "\t", "\x00", "\x7f", "\x0e\x0f", "\x84\x85\x8d",
    "\u202etxt.exe\u202c", "\u2066\u2069\u200e\u200f", "\u061c", "[/x]", "[bold]",
    "[/]",
    "[link=http://x]y[/link]", "[@click=app.exit]q[/]", "\\[", "[red on blue",
    "\ud800", "\udcff\udc80", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
    "你好世界", "한국어", "ｆｕｌｌ", "\u3000", "e\u0301", "\u0301" * 8,
    "\u200b" * 9, "\u200d", "\ufeff", "\u2028\u2029", "\u00ad", "\U000e0041",
    "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "\ufe0f", "☰", "㉈", "\u0e33", "कि", "ﷺ",
    "%s{0}$(x)`x`", "'\"", "a" * 300, "word " * 60, "日" * 200, "</think>",
)  # fmt: skip
MEGABYTE = 1 << 20


class Hostile:
    """An endless supply of hostile strings; the same ones for the same seed.

    Args:
        seed: Of the choice.

    Attributes:
        made: How many were given out.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.made = 0

    def text(self) -> str:
        """The next string; one in two hundred is a line of a megabyte."""
        self.made += 1
        some = self._random.choices(PIECES, k=self._random.randint(1, 6))
        whole = "".join(some)
        if self._random.random() < 0.005:
            whole *= MEGABYTE // len(whole)
        elif self._random.random() < 0.1:
            whole = "".join(
                chr(self._random.randrange(0x110000)) for _ in range(20)
            )  # also surrogates and what is not assigned
        return whole

    def bytes(self) -> bytes:
        """The next string as a file holds it, now and then not UTF-8."""
        noise = self._random.randbytes(self._random.choice((0, 0, 8)))
        return self.text().encode("utf-8", "surrogatepass") + noise

    def spoil(self, value: Any) -> Any:
        """The same value with every text in it replaced by a hostile one."""
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self.text()
        if isinstance(value, SampleTokens):
            return self._tokens(value)
        if is_dataclass(value) and not isinstance(value, type):
            told = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
            return replace(value, **{n: self.spoil(v) for n, v in told.items()})
        if isinstance(value, tuple):
            return tuple(map(self.spoil, value))
        if isinstance(value, frozenset):
            return frozenset(map(self.spoil, value))
        if isinstance(value, Mapping):
            return {self.text(): self.spoil(v) for v in value.values()}
        return value

    def _tokens(self, tokens: SampleTokens) -> SampleTokens:
        return replace(
            tokens,
            texts=tuple(self.text() for _ in tokens.texts),
            absent={name: self.text() for name in tokens.absent},
        )

    def snapshot(self, snapshot: RunSnapshot, version: int) -> RunSnapshot:
        """A run in which everything that comes from outside is hostile."""
        view, store = snapshot.viewed, None
        if view is not None and view.tokens is not None:
            kept = {row.row: view.tokens.sample(row.row) for row in view.rows}
            store = ScriptedTokens(
                {row: self.spoil(tokens) for row, tokens in kept.items() if tokens}
            )
        spoilt: RunSnapshot = self.spoil(snapshot)
        header = replace(
            spoilt.header,
            run_dir=snapshot.header.run_dir,
            log="",
            # Every other run takes commands, so that its dialogs open.
            read_only=spoilt.header.read_only if version % 2 else "",
        )
        # Flags are ours; all else of a sample is the model's or another engine's.
        rows = tuple(map(_flagged, spoilt.viewed.rows if spoilt.viewed else ()))
        viewed = spoilt.viewed and replace(
            spoilt.viewed, version=version, rows=rows, tokens=store
        )
        # The curves keep their names, so that they are drawn; others stand beside.
        series = {**spoilt.series, **snapshot.series}
        return replace(spoilt, header=header, viewed=viewed, series=series)


def _flagged(row: SampleRow) -> SampleRow:
    return replace(row, flags=("LOOP",) if row.row % 3 == 0 else ())
