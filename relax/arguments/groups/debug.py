"""Isolated debugging: dumps, replayed data, drills."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relax.arguments.flag import FRACTION, NON_NEGATIVE, POSITIVE, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugSettings:
    """What part of the run is alive, and what it reads and writes instead."""

    debug_rollout_only: bool = field(
        default=False, metadata=flag("Generate only; Megatron is not initialised.")
    )
    debug_train_only: bool = field(
        default=False,
        metadata=flag(
            "Train only, from dumps; no rollout engine is started.",
            derived="on with --load-debug-rollout-data",
        ),
    )
    save_debug_rollout_data: str | None = field(
        default=None,
        metadata=flag(
            "Dump each rollout here; {rollout_id} is filled in.",
            kind=ValueKind.TEMPLATE,
        ),
    )
    load_debug_rollout_data: str | None = field(
        default=None,
        metadata=flag(
            "Train on these rollout dumps; {rollout_id} is filled in.",
            kind=ValueKind.TEMPLATE,
        ),
    )
    load_debug_rollout_data_subsample: float | None = field(
        default=None,
        metadata=flag("Part of the loaded samples to keep.", bounds=FRACTION),
    )
    save_debug_train_data: str | None = field(
        default=None,
        metadata=flag(
            "Dump each rank's training data here; {rollout_id} and {rank} are"
            " filled in.",
            kind=ValueKind.TEMPLATE,
        ),
    )
    dump_details: Path | None = field(
        default=None,
        metadata=flag(
            "Folder for both kinds of dump, and the tokenizer.", kind=ValueKind.PATH
        ),
    )
    load_forge_rollout_data: str | None = field(
        default=None,
        metadata=flag(
            "Dump that forge_load returns instead of generating.",
            kind=ValueKind.TEMPLATE,
        ),
    )
    check_weight_update_equal: bool = field(
        default=False,
        metadata=flag("Compare the engine's weights after each update: always done."),
    )
    overwrite_dumps: bool = field(
        default=False,
        metadata=flag("Replace dumps that exist with another content.", ours=True),
    )
    dump_on: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "Dump a step by itself: verdict:FAIL, nonfinite or 'grad_norm > 10'"
            " (may be repeated).",
            ours=True,
            kind=ValueKind.REPEATED,
        ),
    )
    keep_rollouts: int = field(
        default=2,
        metadata=flag(
            "Rollouts whose complete columns the driver keeps for a later dump.",
            ours=True,
            bounds=NON_NEGATIVE,
        ),
    )
    keep_rollouts_bytes: int = field(
        default=1024 * 1024 * 1024,
        metadata=flag(
            "Bytes that the kept rollouts may have together.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    dump_keep_last: int | None = field(
        default=None,
        metadata=flag(
            "Dumps of this run to keep; older ones are removed.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    dump_max_bytes: int | None = field(
        default=None,
        metadata=flag(
            "Bytes that this run's dumps may have together; the oldest are removed,"
            " never the newest.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    inject_fault: str | None = field(
        default=None, metadata=flag("Drill: run with this known fault.", ours=True)
    )
