"""The command lines that run a dumped step again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from relax.arguments.dump_template import as_template
from relax.arguments.environment import interpreter, redactor
from relax.arguments.repeat import words_again
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
    redact = redactor()
    safe = {
        name: {**entry, "value": redact.value(name, entry["value"])}
        for name, entry in arguments.items()
    }
    skipped = _NOT_REPEATED | ({"load"} if weights.folder != NOT_KEPT else set())
    given = list(words_again(safe, leave_out=skipped))
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
