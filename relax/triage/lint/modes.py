"""Debug modes, replays and dumps: what cannot go together, or leads nowhere."""

from __future__ import annotations

from typing import Final

from relax.triage.lint.settings import Combination, Problem, Settings, flag, pairs
from relax.triage.verdict import Status


def _no_input(settings: Settings) -> Problem | None:
    if not settings.on("debug_train_only") or settings.on("load_debug_rollout_data"):
        return None
    return Problem(
        status=Status.FAIL,
        summary="--debug-train-only without --load-debug-rollout-data",
        why="there is nothing to train on, and nothing says so before step 0",
        fix="name the dumps with --load-debug-rollout-data",
        names=("debug_train_only",),
    )


def _rank_template(settings: Settings) -> Problem | None:
    template = settings.get("save_debug_train_data")
    if not isinstance(template, str) or "{rank}" in template:
        return None
    return Problem(
        status=Status.FAIL,
        summary="--save-debug-train-data without {rank}: the last rank to write wins",
        why="every rank formats the same path and overwrites the others' file",
        fix="write {rollout_id}_{rank}.pt",
        names=("save_debug_train_data",),
    )


def _hidden_errors(settings: Settings) -> Problem | None:
    names = [n for n in ("use_fault_tolerance", "use_health_check") if settings.on(n)]
    debugging = any(
        settings.on(name)
        for name in ("debug_rollout_only", "debug_train_only", "dump_details")
    )
    if not names or not debugging:
        return None
    return Problem(
        status=Status.WARN,
        summary=f"{flag(names[0])} while debugging",
        why="engines are restarted and the first error is hidden by what follows",
        fix="leave it off while debugging",
        names=tuple(names),
    )


def _template_in_forge(settings: Settings) -> Problem | None:
    path = "relax.engine.rollout.forge_load.generate_rollout"
    if not settings.on("load_forge_rollout_data"):
        return None
    if str(settings.get("rollout_function_path")).endswith(
        "forge_load.generate_rollout"
    ):
        return None
    return Problem(
        status=Status.FAIL,
        summary="--load-forge-rollout-data without its rollout function",
        why="the dump is never read: generation goes on as ever",
        fix=f"--rollout-function-path {path}",
        names=("load_forge_rollout_data",),
        command=f"--rollout-function-path {path}",
    )


_REPLAYS: Final = "replay one way: with the engine (forge) or without (load)"

MODE_COMBINATIONS: Final = (
    Combination("train_only_input", "modes", "a train-only run has input", _no_input),
    Combination(
        "both_debug_modes",
        "modes",
        "one debug mode at a time",
        pairs(
            "debug_rollout_only",
            "debug_train_only",
            status=Status.FAIL,
            why="one leaves the trainer out, the other the engine: nothing is left",
            fix="take one of them",
        ),
    ),
    Combination(
        "rollout_only_replay",
        "modes",
        "a rollout-only run generates",
        pairs(
            "debug_rollout_only",
            "load_debug_rollout_data",
            status=Status.FAIL,
            why="loading dumps implies --debug-train-only",
            fix="take one of them",
        ),
    ),
    Combination(
        "forge_and_load",
        "modes",
        "one replay at a time",
        pairs(
            "load_forge_rollout_data",
            "load_debug_rollout_data",
            status=Status.FAIL,
            why="the second ends the engine that the first wants alive",
            fix=_REPLAYS,
        ),
    ),
    Combination(
        "forge_and_rollout_only",
        "modes",
        "a forge run trains",
        pairs(
            "load_forge_rollout_data",
            "debug_rollout_only",
            status=Status.FAIL,
            why="nothing would be trained",
            fix=_REPLAYS,
        ),
    ),
    Combination(
        "forge_function", "modes", "a forge run reads its dump", _template_in_forge
    ),
    Combination(
        "rank_in_template", "dumps", "each rank has its own file", _rank_template
    ),
    Combination("hidden_errors", "SGLang", "the first error is seen", _hidden_errors),
)
