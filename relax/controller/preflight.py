"""What can be known about dumps before anything starts, checked then."""

from __future__ import annotations

from pathlib import Path

from relax.arguments import Arguments
from relax.control.run_folder import read_run_info
from relax.controller.announce import first_rollout, num_rollout
from relax.controller.dumper import dump_places
from relax.controller.modes import mode_of
from relax.dump.manifest import read_manifest
from relax.dump.paths import DumpTemplate
from relax.engine.rollout.forge_load import FLAG as FORGE_FLAG
from relax.engine.rollout.replayed import (
    check_fit,
    dump_path,
    load_for_training,
    read_dump,
)
from relax.errors import ArgumentError, DumpError, DumpMissing, RecordError
from relax.events.types import Mode


def check_dumps(arguments: Arguments) -> None:
    """Reads the first dump that the run will read, and looks where it will write.

    Raises:
        ArgumentError: A dump does not fit the run, or a dump is in the way of ours.
        DumpError: A dump is missing or cannot be read.
    """
    first = first_rollout(arguments)
    mode = mode_of(arguments)
    if arguments.debug.load_debug_rollout_data is not None:
        load_for_training(arguments, first)
    elif mode is Mode.FORGE:
        _check_forge(arguments, first)
    if not arguments.debug.overwrite_dumps:
        _check_free(arguments)


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


def _check_free(arguments: Arguments) -> None:
    """Looks for dumps of others where this run will write.

    What an earlier attempt of the same run dumped stays: the same content is accepted
    later, and another is refused then.
    """
    debug = arguments.debug
    named: dict[str, tuple[str | None, int]] = {
        "--save-debug-rollout-data": (debug.save_debug_rollout_data, 1),
        "--save-debug-train-data": (
            debug.save_debug_train_data,
            arguments.cluster.world_size,
        ),
    }
    places = dump_places(debug)
    mine = _run_id(arguments)
    for rollout_id in range(first_rollout(arguments), num_rollout(arguments)):
        for flag, (template, ranks) in named.items():
            if template is None:
                continue
            for rank in range(ranks):
                path = DumpTemplate(template).path(rollout_id=rollout_id, rank=rank)
                if path.exists() and _owner(places.manifest(rollout_id)) != mine:
                    raise ArgumentError(
                        f"there is a dump of rollout {rollout_id} already",
                        where=f"{flag} {path}",
                        hint="give another path, or replace it by --overwrite-dumps",
                    )


def _run_id(arguments: Arguments) -> str | None:
    """Of the run that is resumed; None for a new one."""
    folder = arguments.run.run_dir
    if folder is None or not folder.exists():
        return None
    try:
        return read_run_info(folder).run_id
    except RecordError:
        return None


def _owner(manifest: Path | None) -> str:
    """The run that a dump is of; '' when it does not say."""
    if manifest is None:
        return ""
    try:
        return read_manifest(manifest).run_id
    except DumpError:
        return ""
