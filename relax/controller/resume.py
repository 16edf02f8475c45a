"""Where a run goes on from: the newest complete checkpoint, or the beginning.

    RUN has an attempt that wrote checkpoints into --save     → its newest one
    --load is a checkpoint, or a folder of them               → it, or the newest
    --load is --save, with nothing in it yet                  → the beginning
    --load is a Hugging Face folder                           → its weights, rollout 0

``--start-rollout-id R`` asks for the checkpoint after rollout R-1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from relax.arguments import Arguments
from relax.arguments.arguments import replaced
from relax.backends.checkpoint_meta import (
    PREFIX,
    RunProgress,
    checkpoints_in,
    is_checkpoint,
    read_meta,
)
from relax.backends.ray_border import answer
from relax.control.run_folder import read_run_info
from relax.controller.announce import RESUMED, first_rollout
from relax.controller.runlog import RunLog
from relax.controller.workers import Workers
from relax.errors import ArgumentError, RecordError


@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """A checkpoint that a run goes on from.

    Attributes:
        path: Its folder.
        progress: How far the run was that wrote it; None when no run did.
    """

    path: Path
    progress: RunProgress | None

    async def restore(self, workers: Workers) -> None:
        """Brings the data source to where it stood; the trainer is there already.

        Raises:
            RecordError: The prompts or their order are not those of then.
        """
        cursor = self.progress.cursor if self.progress else None
        if cursor is not None and workers.runner is not None:
            back = workers.runner.restore_cursor.remote(cursor)
            await answer(back, worker="rollout-runner")


def resumed(arguments: Arguments) -> tuple[Arguments, ResumePoint | None]:
    """Finds what the run goes on from; reads files and starts nothing.

    Args:
        arguments: As they were given.

    Returns:
        The arguments with ``--load`` and ``--start-rollout-id`` as they come out of it,
        and the checkpoint; None starts at the beginning.

    Raises:
        ArgumentError: There is no such checkpoint, or ``--save`` holds later ones.
    """
    point = _own_newest(arguments) or _loaded(arguments)
    if point is None:
        empty = _loads_what_it_saves(arguments)
        found = replaced(arguments, load=None) if empty else arguments
    else:
        found = _going_on(arguments, point)
    _refuse_later(found)
    return found, point


def announce(
    point: ResumePoint | None, *, attempt: int, first: int, log: RunLog
) -> None:
    """Says in the run's log where it begins."""
    if point is not None:
        log.info(
            f"Attempt {attempt} goes on from {point.path}: rollout {first} is next"
        )
    elif attempt > 1:
        log.warning(
            f"Attempt {attempt} starts again at rollout {first}: there is no complete "
            "checkpoint of an earlier one (--save and --save-interval write them)"
        )


def make_room(arguments: Arguments, log: RunLog) -> None:
    """Moves incomplete checkpoints aside that stand where this run will write."""
    save = arguments.checkpoint.save
    if save is None:
        return
    complete = set(checkpoints_in(save).values())
    for path in sorted(Path(save).glob(f"{PREFIX}*")):
        if path in complete or not path.name.removeprefix(PREFIX).isdecimal():
            continue
        aside = path.with_name(f".{path.name}.incomplete")
        if not aside.exists():
            path.rename(aside)
            log.warning(f"{path} is incomplete; it was moved to {aside.name}")


def _own_newest(arguments: Arguments) -> ResumePoint | None:
    """Of the checkpoints that earlier attempts of this very run wrote."""
    save, run_dir = arguments.checkpoint.save, arguments.run.run_dir
    if save is None or run_dir is None:
        return None
    try:
        run_id = read_run_info(Path(run_dir)).run_id
    except RecordError:
        return None
    own = {
        rollout_id: path
        for rollout_id, path in checkpoints_in(save).items()
        if _progress(path).run_id == run_id
    }
    wanted = _wanted(arguments, own)
    return None if wanted is None else _point(own[wanted])


def _loaded(arguments: Arguments) -> ResumePoint | None:
    load = arguments.checkpoint.load
    if load is None:
        return None
    if is_checkpoint(load):
        return _point(load)
    found = checkpoints_in(load)
    if not found:
        if not (_holds_weights(load) or _loads_what_it_saves(arguments)):
            raise ArgumentError(
                f"--load {load} holds no complete checkpoint and no model's weights",
                hint="give a folder that --save or --save-hf wrote, or a model's",
            )
        return None
    wanted = _wanted(arguments, found)
    if wanted is None:
        start = arguments.data.start_rollout_id
        raise ArgumentError(
            f"--load {load} has no checkpoint to start rollout {start} from",
            hint=f"it has those after rollouts {', '.join(map(str, found))}",
        )
    return _point(found[wanted])


def _wanted(arguments: Arguments, found: dict[int, Path]) -> int | None:
    """The newest, or the one before ``--start-rollout-id``."""
    start = arguments.data.start_rollout_id
    if start is None:
        return max(found, default=None)
    return start - 1 if start - 1 in found else None


def _point(path: Path) -> ResumePoint:
    return ResumePoint(path=path, progress=read_meta(path).progress)


def _progress(path: Path) -> RunProgress:
    found = read_meta(path).progress
    # A trainer that was saved by hand belongs to no run.
    return found or RunProgress(run_id="", attempt=0, rollout_id=-1, cursor=None)


def _loads_what_it_saves(arguments: Arguments) -> bool:
    """Whether both name one folder in which nothing is yet: a first start."""
    load, save = arguments.checkpoint.load, arguments.checkpoint.save
    if load is None or save is None:
        return False
    return Path(load) == Path(save) and not _holds_weights(load)


def _holds_weights(folder: Path) -> bool:
    """Whether it is a Hugging Face folder."""
    return any(folder.glob("*.safetensors"))


def _going_on(arguments: Arguments, point: ResumePoint) -> Arguments:
    changes: dict[str, object] = {"load": point.path}
    if arguments.data.start_rollout_id is None and point.progress is not None:
        changes["start_rollout_id"] = point.progress.rollout_id + 1
    origins = {**arguments.origins, **dict.fromkeys(changes, RESUMED)}
    return replace(replaced(arguments, **changes), origins=origins)


def _refuse_later(arguments: Arguments) -> None:
    """A run must not end in the middle because its checkpoint's place is taken."""
    save, first = arguments.checkpoint.save, first_rollout(arguments)
    later = (
        [number for number in checkpoints_in(save) if number >= first] if save else ()
    )
    if later:
        raise ArgumentError(
            f"--save {save} holds checkpoints of rollout {later[0]} and later, and "
            f"this run starts at rollout {first}",
            hint="give another --save, or go on from them by --load",
        )
