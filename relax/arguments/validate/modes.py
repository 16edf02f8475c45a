"""Debug modes, dumps and replays."""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.dump_template import DumpKind, DumpTemplate
from relax.arguments.validate.rule import Machine, Rule, broken
from relax.errors import ArgumentError

FORGE_FUNCTION: Final = "relax.engine.rollout.forge_load.generate_rollout"
"""The rollout function that returns a dump instead of generating."""


def one_debug_mode(arguments: Arguments, machine: Machine) -> None:
    """A run cannot both leave out the trainer and leave out generation."""
    if arguments.debug.debug_rollout_only and arguments.debug.debug_train_only:
        raise broken(
            arguments,
            "debug_rollout_only",
            "cannot be combined with --debug-train-only, which is implied by"
            " --load-debug-rollout-data",
            fix="keep one of them",
        )


def train_only_has_data(arguments: Arguments, machine: Machine) -> None:
    """Samples come from a dump that a flag names, or that somebody chooses later."""
    debug = arguments.debug
    named = debug.load_debug_rollout_data is not None
    if debug.debug_train_only and not named and arguments.run.no_control:
        raise broken(
            arguments,
            "debug_train_only",
            "there is nothing to train on, and with --no-control nobody can choose",
            fix="give the dumps by --load-debug-rollout-data",
        )


def train_only_has_length(arguments: Arguments, machine: Machine) -> None:
    """Without a data source, epochs cannot be counted."""
    if arguments.debug.debug_train_only and arguments.data.num_rollout is None:
        raise broken(
            arguments,
            "debug_train_only",
            "the number of rollouts cannot follow from the prompts",
            fix="give --num-rollout",
        )


def run_has_length(arguments: Arguments, machine: Machine) -> None:
    """A run ends after a number of rollouts or of epochs, not both."""
    data = arguments.data
    if data.num_rollout is None and data.num_epoch is None:
        raise broken(
            arguments, "num_rollout", "is not given", fix="give it, or --num-epoch"
        )
    if data.num_rollout is not None and data.num_epoch is not None:
        raise broken(
            arguments,
            "num_epoch",
            f"--num-rollout {data.num_rollout} says another length",
            fix="keep one of the two",
        )


def forge_is_alone(arguments: Arguments, machine: Machine) -> None:
    """A forged rollout needs all parts alive; a debug mode would never read it."""
    debug = arguments.debug
    if debug.load_forge_rollout_data is None:
        return
    if debug.debug_train_only or debug.debug_rollout_only:
        mode = (
            "--debug-rollout-only" if debug.debug_rollout_only else "--debug-train-only"
        )
        raise broken(
            arguments,
            "load_forge_rollout_data",
            f"{mode} would leave it unread",
            fix="leave away one of the two",
        )


def forge_has_both(arguments: Arguments, machine: Machine) -> None:
    """A forged rollout takes its function and its dump."""
    forged = arguments.rollout.rollout_function_path == FORGE_FUNCTION
    if forged and arguments.debug.load_forge_rollout_data is None:
        raise broken(
            arguments,
            "rollout_function_path",
            "it has no dump to return",
            fix="give --load-forge-rollout-data",
        )
    if not forged and arguments.debug.load_forge_rollout_data is not None:
        raise broken(
            arguments,
            "load_forge_rollout_data",
            "no function would read it",
            fix=f"give --rollout-function-path {FORGE_FUNCTION}",
        )


def subsample_has_data(arguments: Arguments, machine: Machine) -> None:
    """There is something to take a part of."""
    debug = arguments.debug
    part = debug.load_debug_rollout_data_subsample
    if part is not None and debug.load_debug_rollout_data is None:
        raise broken(
            arguments,
            "load_debug_rollout_data_subsample",
            "no dump is loaded",
            fix="give --load-debug-rollout-data, or leave it away",
        )


def weight_check_has_two_sides(arguments: Arguments, machine: Machine) -> None:
    """Weights are compared only where they are sent."""
    debug = arguments.debug
    if debug.check_weight_update_equal and (
        debug.debug_rollout_only or debug.debug_train_only
    ):
        raise broken(
            arguments,
            "check_weight_update_equal",
            "no weights are sent in a debug mode that leaves out one side",
            fix="leave it away",
        )


def templates_are_whole(arguments: Arguments, machine: Machine) -> None:
    """Placeholders are known, and there are as many as keep files apart."""
    saved: dict[str, DumpKind] = {
        "save_debug_rollout_data": "rollout",
        "save_debug_train_data": "train",
        "save_hf": "rollout",
    }
    loaded = ("load_debug_rollout_data", "load_forge_rollout_data")
    values = arguments.values()
    for name in (*saved, *loaded):
        if values[name] is None:
            continue
        template = DumpTemplate(values[name])
        try:
            if name in saved:
                fault = template.fault(
                    world_size=arguments.cluster.world_size,
                    num_rollout=arguments.data.num_rollout,
                    kind=saved[name],
                )
            else:
                fault = template.unknown_placeholder("rollout")
        except ArgumentError as error:
            raise broken(arguments, name, error.what, fix=error.hint) from error
        if fault is not None:
            raise broken(arguments, name, fault.problem, fix=fault.fix)


def dumps_do_not_meet(arguments: Arguments, machine: Machine) -> None:
    """The two kinds of dump are not written to the same file."""
    debug = arguments.debug
    rollout, train = debug.save_debug_rollout_data, debug.save_debug_train_data
    if rollout is None or train is None:
        return
    first = DumpTemplate(rollout).path(rollout_id=0)
    if first == DumpTemplate(train).path(rollout_id=0):
        raise broken(
            arguments,
            "save_debug_train_data",
            "--save-debug-rollout-data writes the same files",
            fix="give it another name",
        )


RULES: Final[tuple[Rule, ...]] = (
    one_debug_mode,
    train_only_has_data,
    train_only_has_length,
    run_has_length,
    forge_is_alone,
    forge_has_both,
    subsample_has_data,
    weight_check_has_two_sides,
    templates_are_whole,
    dumps_do_not_meet,
)
