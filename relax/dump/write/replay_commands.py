"""The command lines that run a dumped step again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from relax.arguments.dump_template import as_template
from relax.arguments.environment import interpreter, redactor
from relax.arguments.refusal import dashed
from relax.dump.manifest import NOT_KEPT, WeightsNote

FORGE_FUNCTION: Final = "relax.engine.rollout.forge_load.generate_rollout"

_NOT_REPEATED: Final = frozenset(
    (
        # What the replay says itself.
        *("debug_rollout_only", "debug_train_only", "load_debug_rollout_data"),
        *("load_debug_rollout_data_subsample", "load_forge_rollout_data"),
        *("rollout_function_path", "num_rollout", "num_epoch", "start_rollout_id"),
        # What belongs to the run that was dumped, and not to its replay.
        *("run_dir", "save", "save_interval", "walk", "pause_at", "no_control"),
        *("save_debug_rollout_data", "save_debug_train_data", "dump_details"),
        *("dump_on", "dump_keep_last", "dump_max_bytes", "overwrite_dumps"),
        *("eval_interval", "eval_prompt_data", "skip_eval_before_train"),
    )
)


def replay_commands(
    arguments: Mapping[str, Mapping[str, Any]],
    *,
    rollout_dump: Path,
    weights: WeightsNote,
) -> dict[str, str]:
    """Command lines that replay one rollout dump, complete enough to paste.

    Args:
        arguments: As `Arguments.to_json` gives them; what was given is given again.
        rollout_dump: The file to replay.
        weights: What the step ran on; a kept folder is loaded.

    Returns:
        By kind: ``train-only`` (the guide's second workflow) and ``forge`` (its
        fourth). A secret among the arguments stands there as ``<redacted>``.
    """
    dump = as_template(rollout_dump.absolute())
    given = list(_given(arguments, skip_load=weights.folder != NOT_KEPT))
    if weights.folder != NOT_KEPT:
        given += ["--load", weights.folder]
    once = [*given, "--num-rollout", "1"]
    start = [str(interpreter()), "-m", "relax.entrypoints.train"]
    return {
        "train-only": shlex.join([*start, *once, "--load-debug-rollout-data", dump]),
        "forge": shlex.join(
            [
                *(*start, *once, "--load-forge-rollout-data", dump),
                *("--rollout-function-path", FORGE_FUNCTION),
            ]
        ),
    }


def _given(
    arguments: Mapping[str, Mapping[str, Any]], *, skip_load: bool
) -> Iterable[str]:
    """The words of every argument that a flag or a file set."""
    redact = redactor()
    for name, entry in arguments.items():
        origin = str(entry["origin"])
        if name in _NOT_REPEATED or (name == "load" and skip_load):
            continue
        if origin == "default" or origin.startswith("derived"):
            continue
        value = redact.value(name, entry["value"])
        if value is None:
            continue
        if isinstance(value, bool):
            yield dashed(name) if value else f"{dashed(name)}=false"
        elif isinstance(value, list):
            yield dashed(name)
            yield from map(str, value)
        else:
            # One word: a value that begins with a dash would be read as a flag.
            yield f"{dashed(name)}={value}"
