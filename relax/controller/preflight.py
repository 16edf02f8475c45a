"""What can be known about dumps before anything starts, checked then."""

from __future__ import annotations

from pathlib import Path

from relax.arguments import Arguments
from relax.controller.announce import first_rollout
from relax.controller.modes import mode_of
from relax.dump.paths import DumpTemplate
from relax.engine.rollout.forge_load import FLAG as FORGE_FLAG
from relax.engine.rollout.replayed import (
    check_fit,
    dump_path,
    load_for_training,
    read_dump,
)
from relax.errors import ArgumentError, DumpMissing
from relax.events.types import Mode


def check_dumps(arguments: Arguments) -> None:
    """Reads the first dump that the run will read, and looks where it will write.

    Raises:
        ArgumentError: A dump does not fit the run, or a dump is in the way of ours.
        DumpError: A dump is missing or cannot be read.
    """
    first = first_rollout(arguments)
    mode = mode_of(arguments)
    if mode is Mode.TRAIN_ONLY:
        load_for_training(arguments, first)
    elif mode is Mode.FORGE:
        _check_forge(arguments, first)
    for name in ("save_debug_rollout_data", "save_debug_train_data"):
        _check_free(arguments, name, first)


def _check_forge(arguments: Arguments, first: int) -> None:
    template = str(arguments.debug.load_forge_rollout_data)
    paths = [dump_path(template, first), dump_path(template, 0)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DumpMissing(
            "there is no such dump",
            where=f"{FORGE_FLAG} {paths[0]}",
            hint="give a file that --save-debug-rollout-data or --dump-details wrote",
        )
    samples = read_dump(path, reward_key=arguments.reward.reward_key)
    check_fit(samples, arguments, path=path, flag=FORGE_FLAG)


def _check_free(arguments: Arguments, name: str, first: int) -> None:
    template = arguments.values()[name]
    if template is None or arguments.debug.overwrite_dumps:
        return
    path: Path = DumpTemplate(template).path(rollout_id=first)
    if path.exists():
        raise ArgumentError(
            f"there is a dump of rollout {first} already",
            where=f"--{name.replace('_', '-')} {path}",
            hint="give another path, or replace it by --overwrite-dumps",
        )
