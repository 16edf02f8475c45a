"""What a log rule may look at: the marked lines of all logs, in order of time."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from relax.triage.log_signatures import FAILURES
from relax.triage.verdict import Evidence, Place

LINE_LENGTH = 150
LINES_AROUND = 15
TOLD_TO_END = (0, -2, -15)
"""Exit codes of a process that ended well, or by SIGINT or SIGTERM."""
_EXIT_CODE = re.compile(r"exit code (-?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a log that one of `relax.triage.log_signatures.MARKS` fits.

    Attributes:
        mark: Which.
        file: The log.
        number: Its line, from 1.
        text: Its words, without escapes; cut.
        process: Ray's ``Name pid=…``; '' when unknown.
        rank: ``rank 3``, ``TP0``; '' when unknown.
        time: Seconds, comparable within the evidence; None when unknown.
        rollout_id: The rollout that the log was at; -1 before the first.
    """

    mark: str
    file: str
    number: int
    text: str
    process: str = ""
    rank: str = ""
    time: float | None = None
    rollout_id: int = -1

    @classmethod
    def of(cls, line: Any, *, file: str) -> Self:
        """From a marked line.

        Args:
            line: A `relax.dump.logs.story.MarkedLine`.
            file: The log that it stands in.
        """
        return cls(
            mark=line.mark,
            file=file,
            number=line.number,
            text=line.words.text,
            process=line.words.process,
            rank=line.words.rank,
            time=line.words.time,
            rollout_id=line.rollout_id,
        )

    @property
    def who(self) -> str:
        """The rank or process, as far as the line tells."""
        return self.rank or self.process.partition(",")[0] or "a process"

    def __str__(self) -> str:
        """``run.log:120: words``."""
        text = self.text.strip()
        if len(text) > LINE_LENGTH:
            text = text[: LINE_LENGTH - 1] + "…"
        return f"{self.file.rpartition('/')[2]}:{self.number}: {text}"


@dataclass(frozen=True, kw_only=True)
class LogEvidence:
    """The logs of one run.

    Attributes:
        lines: Marked lines, in order of time where times are known.
        counts: How often each mark fits; more than the lines that are kept.
        num_lines: Lines of all logs.
        arguments: What is known of the run's arguments, names with underscores.
        arguments_file: Where they were read from; ''.
        files: The logs.
        last_rollouts: By log: the last rollout that it was at, for logs that tell.
        last_lines: By log: its number of lines.
    """

    lines: tuple[LogLine, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    num_lines: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_file: str = ""
    files: tuple[str, ...] = ()
    last_rollouts: Mapping[str, int] = field(default_factory=dict)
    last_lines: Mapping[str, int] = field(default_factory=dict)

    def went_on(self, line: LogLine) -> bool:
        """Whether the run made progress after a line, as far as its log tells."""
        return self.last_rollouts.get(line.file, -1) > max(line.rollout_id, 0)

    def lines_after(self, line: LogLine) -> int:
        """Lines of the same log behind a line."""
        return self.last_lines.get(line.file, line.number) - line.number

    def of(self, *marks: str) -> list[LogLine]:
        """The lines with one of these marks."""
        return [line for line in self.lines if line.mark in marks]

    def count(self, *marks: str) -> int:
        """How often these marks fit."""
        return sum(self.counts.get(mark, 0) for mark in marks)

    @cached_property
    def first_failure(self) -> LogLine | None:
        """The first line that says that something ended or got stuck."""
        return next(
            (
                line
                for line in self.lines
                if line.mark in FAILURES and not self.was_asked_to_end(line)
            ),
            None,
        )

    def was_asked_to_end(self, line: LogLine) -> bool:
        """Whether a SIGQUIT follows a child that was told to end: a shutdown."""
        child = self.before(line, "child_exit") if line.mark == "sigquit" else None
        if child is None or child.file != line.file:
            return False
        near = line.number - child.number <= LINES_AROUND
        return near and exit_code_of(child) in TOLD_TO_END

    def before(self, line: LogLine, *marks: str) -> LogLine | None:
        """The last line with one of these marks before another line."""
        at = self.lines.index(line)
        found = [other for other in self.lines[:at] if other.mark in marks]
        return found[-1] if found else None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Stop strings that the run is known to use."""
        for name in ("rollout_stop", "stop"):
            given = self.arguments.get(name)
            if given:
                return (given,) if isinstance(given, str) else tuple(map(str, given))
        return ()

    def shown(self, lines: Iterable[LogLine], most: int = 3) -> tuple[Evidence, ...]:
        """Lines as a verdict's evidence, the first ones."""
        return tuple(
            Evidence(
                text=str(line), where=place(line), file=line.file, line=line.number
            )
            for line in list(lines)[:most]
        )

    def look_command(self, line: LogLine) -> str:
        """The command line that shows what stands around a line."""
        first = max(line.number - LINES_AROUND, 1)
        span = f"{first},{line.number + LINES_AROUND}p"
        return f"sed -n {span} {shlex.quote(line.file)}"

    def lint_command(self) -> str:
        """The command line that finds stop strings and names their ids."""
        what = shlex.quote(self.arguments_file or ".")
        checkpoint = self.arguments.get("hf_checkpoint")
        with_it = f" --tokenizer {shlex.quote(str(checkpoint))}" if checkpoint else ""
        return f"relax-tui lint {what}{with_it}"


def exit_code_of(line: LogLine) -> int | None:
    """The exit code that a line names; negative: the signal that ended it."""
    match = _EXIT_CODE.search(line.text)
    return None if match is None else int(match[1])


def place(line: LogLine) -> Place:
    """Where a line belongs: the rollout that the log was at."""
    return Place(rollout_id=line.rollout_id)


def seconds_between(first: LogLine, second: LogLine) -> float | None:
    """Seconds from one line to another; None when a time is unknown."""
    if first.time is None or second.time is None:
        return None
    return second.time - first.time


def who_says(lines: Sequence[LogLine]) -> list[str]:
    """The ranks that say something, each once, in order."""
    return list(dict.fromkeys(line.rank for line in lines if line.rank))


def in_order(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """Lines of several logs by time; a line without one stays behind its neighbour.

    Where no line of a log has a time, or only clocks without dates stand in it, logs
    follow each other as they were given.
    """
    given = list(lines)
    dated = 1e8
    if not all(line.time is None or line.time > dated for line in given):
        return tuple(given)
    known: dict[str, float] = {}
    keys = []
    for position, line in enumerate(given):
        if line.time is not None:
            known[line.file] = line.time
        keys.append((known.get(line.file, 0.0), position))
    return tuple(given[position] for _, position in sorted(keys))
