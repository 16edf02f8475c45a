"""How a run that was lost is started again, out of what it said of itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax.errors import RecordError
from relax_tui.printing import quoted

if TYPE_CHECKING:
    from relax.events.types import RunStarted

# `relax.backends.checkpoint_meta`, which the console does not import, writes them.
CHECKPOINTS = "rollout_*/relax_checkpoint.json"
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
    words += ["--", *_flags(started.arguments, wall)]
    command = " ".join(map(quoted, words))
    effect = _effect(started.arguments, rollout_id)
    if "<redacted>" in command:
        effect += "; put the secrets in the place of <redacted>"
    return Again(command=command, effect=effect)


def _flags(arguments: Mapping[str, Any], wall: float) -> Iterable[str]:
    """The settings files as they were named, and the flags; all flags without files."""
    # Only a run that was lost needs the arguments' spelling.
    from relax.arguments.repeat import was_given, words_again  # noqa: PLC0415

    given = {k: v for k, v in arguments.items() if was_given(v) and k not in _BY_HAND}
    origins = {str(v["origin"]).rpartition(":")[0] for v in given.values()}
    files = sorted(origins - {""})
    if len(files) <= 1 and all(_is_unchanged(Path(name), wall) for name in files):
        flags = {k: v for k, v in given.items() if v["origin"] == "flag"}
        named = [word for name in files for word in ("--config", name)]
        return [*named, *words_again(flags)]
    return list(words_again(given))


def _is_unchanged(path: Path, wall: float) -> bool:
    try:
        return path.stat().st_mtime <= wall
    except OSError:
        return False


def _other_interpreter(run_dir: Path) -> str:
    from relax.control.run_folder import read_run_info  # noqa: PLC0415

    try:
        interpreter = read_run_info(run_dir).interpreter
    except RecordError:
        return ""
    return "" if interpreter in ("", sys.executable) else interpreter


def _effect(arguments: Mapping[str, Any], rollout_id: int) -> str:
    """Whether the run goes on, and from where; or why it begins anew."""
    save = arguments.get("save", {}).get("value")
    newest = max(_checkpoints(Path(save)), default=None) if save else None
    if newest is None:
        why = f"no checkpoint is in {save}" if save else "it was run without --save"
        return f"begins anew at its first rollout ({why})"
    lost = rollout_id - newest
    again = f"; {lost} after it are done again" if lost > 0 else ""
    return f"goes on from the checkpoint after rollout {newest} in {save}{again}"


def _checkpoints(folder: Path) -> list[int]:
    names = [path.parent.name.rpartition("_")[2] for path in folder.glob(CHECKPOINTS)]
    return [int(name) for name in names if name.isdecimal()]
