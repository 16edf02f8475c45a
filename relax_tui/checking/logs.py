"""Logs as evidence: their numbers for the rules, their marked lines for log rules."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relax.dump.logs.read import LogProgress, read_log
from relax.dump.logs.story import LogStory
from relax.triage.log_evidence import LogEvidence, LogLine, in_order
from relax.triage.log_signatures import MARKS


def read_logs(
    paths: Sequence[Path],
    *,
    on_progress: Callable[[Path, LogProgress], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[LogStory]:
    """Reads logs, one after the other.

    Raises:
        DumpError: One cannot be read, or reading was cancelled.
    """
    stories = []
    for path in paths:

        def tell(progress: LogProgress, path: Path = path) -> None:
            if on_progress is not None:
                on_progress(path, progress)

        stories.append(read_log(path, marks=MARKS, on_progress=tell, cancel=cancel))
    return stories


def numbers_of(story: LogStory) -> dict[int, dict[str, float]]:
    """A log's numbers by rollout and name."""
    return {
        rollout_id: {name: spot.value for name, spot in values.items()}
        for rollout_id, values in story.by_rollout().items()
    }


def log_evidence(
    stories: Sequence[LogStory],
    *,
    arguments: dict[str, Any],
    arguments_file: str = "",
) -> LogEvidence:
    """The marked lines of all logs.

    Args:
        stories: The logs.
        arguments: What is known of the run's arguments.
        arguments_file: Where they stand; ''.
    """
    counts: Counter[str] = Counter()
    lines: list[LogLine] = []
    known = dict(arguments)
    num_lines, files = 0, []
    for story in stories:
        counts.update(story.counts)
        num_lines += story.lines
        files.append(str(story.path))
        lines += (LogLine.of(m, file=str(story.path)) for m in story.marked)
        rollouts = story.by_rollout()
        if rollouts:
            first = min(rollouts)
            known["first_rollout_in_log"] = min(
                first, known.get("first_rollout_in_log", first)
            )
    return LogEvidence(
        lines=in_order(lines),
        counts=counts,
        num_lines=num_lines,
        arguments=known,
        arguments_file=arguments_file,
        files=tuple(files),
        last_rollouts={str(s.path): s.place for s in stories if s.place >= 0},
        last_lines={str(s.path): s.lines for s in stories},
    )
