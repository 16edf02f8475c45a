"""What a log has said so far: the state that its lines build up."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax.dump.logs.layouts import UPSTREAM, Reading, read_line
from relax.dump.logs.lines import LineText, clean
from relax.dump.logs.scan import Hit

KEPT_FIRST: Final = 300
KEPT_LAST: Final = 100
KEPT_SAMPLES: Final = 4_000
MARKED_CHARACTERS: Final = 4_000
KEPT_CHARACTERS: Final = 600
"""Of a marked line so much is kept; a printed dict can be megabytes."""

_FROM_ONE: Final = frozenset({"verl", "NeMo-RL"})
"""Engines whose first train step is number 1."""
_LAST_STEP: Final = frozenset({"train/ppo_kl", "train/pg_clipfrac"})
"""What is 0 at a rollout's first step by construction, and says more at its last."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A number and where it stands.

    Attributes:
        value: The number.
        line: Line of the log, from 1.
        offset: Where that line begins, in bytes.
    """

    value: float
    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLine:
    """A line that one of the wanted expressions fits.

    Attributes:
        mark: The expression's name.
        number: Line of the log, from 1.
        offset: Where it begins, in bytes.
        rollout_id: The rollout that the log was at; -1 before the first.
    """

    mark: str
    number: int
    offset: int
    rollout_id: int
    words: LineText


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedSample:
    """A response that the log shows, prompt and response in one text."""

    rollout_id: int
    text: str
    reward: float | None
    line: int


class LogStory:
    """Numbers, responses and marked lines of one log, in the order of the log.

    Args:
        path: The log.

    Attributes:
        bytes: Read so far.
        lines: Read so far.
        engine: Whose layouts were seen; '' when none was.
        arguments: What the engine printed of its arguments, with the line.
        samples: Responses that were printed.
        counts: How often each mark fitted; more than the marked lines that are kept.
        notes: What is odd about the log, one sentence each.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.lines = 0
        self.arguments: dict[str, tuple[Any, int]] = {}
        self.samples: list[PrintedSample] = []
        self.counts: Counter[str] = Counter()
        self._marked: dict[str, list[MarkedLine]] = {}
        self._rollouts: dict[int, dict[str, Spot]] = {}
        self._steps: dict[int, dict[str, Spot]] = {}
        self._evals: dict[int, dict[str, Spot]] = {}
        self._engines: Counter[str] = Counter()
        self._steps_after: Counter[int] = Counter()
        self._at = -1
        self._header: int | None = None
        self._broken: list[tuple[int, str]] = []
        self._again: dict[str, tuple[int, int]] = {}

    def take(self, hit: Hit, marks: Mapping[str, re.Pattern[str]]) -> None:
        """Takes a line in.

        Args:
            hit: The line.
            marks: Wanted expressions by name.
        """
        words = clean(hit.raw)
        reading = read_line(words.text)
        if reading is not None:
            self._read(reading, hit)
        # A response may say anything: its words are no sign of what the run does.
        if reading is not None and reading.kind in ("sample", "rollout", "step"):
            return
        for name, expression in marks.items():
            if expression.search(words.text, 0, MARKED_CHARACTERS) is not None:
                self._mark(name, hit, words)
                break

    @property
    def engine(self) -> str:
        """Whose layouts were seen most; '' when none was."""
        common = self._engines.most_common(1)
        return common[0][0] if common else ""

    @property
    def place(self) -> int:
        """The rollout that the log is at; -1 before the first."""
        return self._at

    @property
    def marked(self) -> list[MarkedLine]:
        """The marked lines that are kept, in the order of the log."""
        lines = [line for found in self._marked.values() for line in found]
        return sorted(lines, key=lambda line: line.number)

    @property
    def steps_per_rollout(self) -> int | None:
        """Optimizer steps on one rollout, as far as the numbers of both tell."""
        if self.engine in _FROM_ONE or self.engine == "prime-rl":
            return 1
        whole = [n for number, n in self._steps_after.items() if number < self._at]
        # The newest rollout may have steps to come; alone it is the best guess.
        whole = whole or list(self._steps_after.values())
        if not whole or min(whole) != max(whole):
            return None
        return whole[0]

    def by_rollout(self) -> dict[int, dict[str, Spot]]:
        """All numbers by rollout; those of its steps as one step's.

        A number that is not finite in any step wins; else the rollout's first step
        counts, and its last for what is 0 at the first by construction.
        """
        found = {number: dict(values) for number, values in self._rollouts.items()}
        per_rollout = self.steps_per_rollout or 1
        first = 1 if self.engine in _FROM_ONE else 0
        for step, values in sorted(self._steps.items()):
            number = (step - first) // per_rollout if step >= first else -1
            mine = found.setdefault(number, {})
            for name, spot in values.items():
                known = mine.get(name)
                if (
                    known is None
                    or not math.isfinite(spot.value)
                    or (name in _LAST_STEP and math.isfinite(known.value))
                ):
                    mine[name] = spot
        found.pop(-1, None)
        return dict(sorted(found.items()))

    def step_numbers(self) -> dict[int, dict[str, Spot]]:
        """Numbers by optimizer step, as the engine counts it."""
        return dict(sorted(self._steps.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the log, one sentence each."""
        notes = [
            f"{what} is printed twice with other numbers (lines {before} and {after}):"
            " the run was started again into the same log; the later ones count"
            for what, (before, after) in self._again.items()
        ][:1]
        if self._broken:
            line, why = self._broken[0]
            notes.append(
                f"{len(self._broken)} lines of numbers could not be read, the first is"
                f" line {line}: {why}"
            )
        return tuple(notes)

    def _read(self, reading: Reading, hit: Hit) -> None:
        if reading.broken:
            self._broken.append((hit.line, reading.broken))
            return
        if reading.kind not in ("argument", "bullet"):
            self._engines[reading.engine] += 1
        if reading.kind == "argument":
            for name, value in reading.values.items():
                self.arguments[name] = (value, hit.line)
        elif reading.kind == "sample":
            self._sample(reading, hit)
        elif reading.kind == "header":
            self._header = reading.number
        elif reading.kind == "bullet":
            if self._header is not None:
                self._engines[reading.engine] += 1
                self._store(self._steps, self._header, reading, hit)
        elif reading.number is not None:
            self._numbered(reading, reading.number, hit)

    def _numbered(self, reading: Reading, number: int, hit: Hit) -> None:
        if reading.kind == "step":
            if self._at >= 0 and number not in self._steps:
                self._steps_after[self._at] += 1
            self._store(self._steps, number, reading, hit)
            if reading.engine != UPSTREAM:
                self._at = number
            return
        if reading.kind == "rollout":
            self._store(self._rollouts, number, reading, hit)
        elif reading.kind == "eval":
            self._store(self._evals, number, reading, hit)
            return
        self._at = number

    def _store(
        self,
        into: dict[int, dict[str, Spot]],
        number: int,
        reading: Reading,
        hit: Hit,
    ) -> None:
        """Merges by key: two sources print one rollout, each its own names."""
        known = into.setdefault(number, {})
        for name, value in reading.values.items():
            before = known.get(name)
            if before is not None and before.value != value and value == value:
                what = f"{reading.kind} {number}"
                self._again.setdefault(what, (before.line, hit.line))
            known[name] = Spot(value, hit.line, hit.offset)

    def _sample(self, reading: Reading, hit: Hit) -> None:
        if len(self.samples) < KEPT_SAMPLES:
            self.samples.append(
                PrintedSample(
                    rollout_id=max(self._at, 0),
                    text=reading.values["text"],
                    reward=reading.values.get("reward"),
                    line=hit.line,
                )
            )

    def _mark(self, name: str, hit: Hit, words: LineText) -> None:
        self.counts[name] += 1
        kept = self._marked.setdefault(name, [])
        text = words.text
        if len(text) > KEPT_CHARACTERS:
            text = text[:KEPT_CHARACTERS] + " …"
        line = MarkedLine(
            mark=name,
            number=hit.line,
            offset=hit.offset,
            rollout_id=self._at,
            words=LineText(
                text=text, process=words.process, rank=words.rank, time=words.time
            ),
        )
        if len(kept) >= KEPT_FIRST + KEPT_LAST:
            del kept[KEPT_FIRST]
        kept.append(line)
