"""How a run that was lost is started again, out of what it said of itself."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax.errors import ArgumentError, RecordError
from relax_tui.printing import quoted

if TYPE_CHECKING:
    from relax.events.types import RunStarted

_BY_HAND = frozenset({"run_dir", "walk"})


@dataclass(frozen=True, kw_only=True)
class Again:
    """How to start a run again: the whole command line, and what it will do."""

    command: str
    effect: str


def again_of(
    run_dir: Path, started: RunStarted, *, rollout_id: int, wall: float
) -> Again:
    """The command line that starts a run again in its folder.

    Args:
        run_dir: The run folder.
        started: What the run said at its start.
        rollout_id: The rollout that ran last; -1 before the first.
        wall: When it started, Unix time: a settings file changed later is not used.

    Returns:
        The command, and whether it goes on or begins anew.
    """
    words = ["relax-tui", "run", "--run-dir", str(run_dir.absolute())]
    python = _other_interpreter(run_dir)
    if python:
        words += ["--python", python]
    newest = _newest_checkpoint(started)
    # With them the run would not begin where its own newest checkpoint ends.
    without = {"load", "start_rollout_id"} if newest is not None else set()
    words += ["--", *_flags(started.arguments, wall, without)]
    if newest is None and started.resumed_from:
        words.append(f"--load={started.resumed_from}")
    command = " ".join(map(quoted, words))
    effect = _effect(started, newest, rollout_id)
    if "<redacted>" in command:
        effect += "; put the secrets in the place of <redacted>"
    return Again(command=command, effect=effect)


def _flags(
    arguments: Mapping[str, Any], wall: float, without: Collection[str]
) -> Iterable[str]:
    """The settings files as they were named, and the flags; all flags without files."""
    # Only a run that was lost needs the arguments' spelling.
    from relax.arguments.repeat import was_given, words_again  # noqa: PLC0415

    left_out = {*_BY_HAND, *without}
    given = {k: v for k, v in arguments.items() if was_given(v) and k not in left_out}
    origins = {str(v["origin"]).rpartition(":")[0] for v in given.values()}
    files = sorted(origins - {""})
    # What is left out must not come back out of a file.
    named = {k for k in without if k in arguments and was_given(arguments[k])}
    if len(files) <= 1 and not named and all(_is_same(f, wall) for f in files):
        flags = {k: v for k, v in given.items() if v["origin"] == "flag"}
        return [*(w for f in files for w in ("--config", f)), *words_again(flags)]
    return list(words_again(given))


def _is_same(name: str, wall: float) -> bool:
    """Whether a settings file is as it was when the run started."""
    try:
        return Path(name).stat().st_mtime <= wall
    except OSError:
        return False


def _other_interpreter(run_dir: Path) -> str:
    from relax.control.run_folder import read_run_info  # noqa: PLC0415

    try:
        interpreter = read_run_info(run_dir).interpreter
    except RecordError:
        return ""
    return "" if interpreter in ("", sys.executable) else interpreter


def _effect(started: RunStarted, newest: int | None, rollout_id: int) -> str:
    """Whether the run goes on, and from where; or why it begins anew."""
    save = _value(started, "save")
    if newest is not None:
        lost = rollout_id - newest
        again = f"; {lost} after it are done again" if lost > 0 else ""
        return f"goes on from the checkpoint after rollout {newest} in {save}{again}"
    why = f"no checkpoint of it is in {save}" if save else "it was run without --save"
    if started.resumed_from:
        return f"goes on from {started.resumed_from} once more ({why})"
    return f"begins anew at rollout {started.start_rollout_id} ({why})"


def _newest_checkpoint(started: RunStarted) -> int | None:
    """The rollout of the newest whole checkpoint that this run wrote."""
    from relax.backends.checkpoint_meta import (  # noqa: PLC0415 - only when lost
        checkpoints_in,
        read_meta,
    )

    save = _value(started, "save")
    own = []
    for number, path in checkpoints_in(save).items() if save else ():
        try:
            progress = read_meta(path).progress
        except ArgumentError:
            # Of a newer version: the run that is started again says so itself.
            continue
        if progress is not None and progress.run_id == started.run_id:
            own.append(number)
    return max(own, default=None)


def _value(started: RunStarted, name: str) -> str:
    value = started.arguments.get(name, {}).get("value")
    return "" if value is None else str(value)
