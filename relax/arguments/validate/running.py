"""Stops, drills and checkpoints."""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.dump_on import parse_dump_trigger
from relax.arguments.metric_names import declared_metrics
from relax.arguments.pause import parse_stop_condition
from relax.arguments.validate.rule import Machine, Rule, broken

DRILLS: Final = (
    "garbled-weights",
    "stale-weights",
    "ref-mismatch",
    "nondeterministic-logprob",
    "temperature-mismatch",
    "shifted-logprob",
    "misaligned-mask",
    "bad-chat-template",
    "nan-grad",
    "zero-std-rewards",
    "hung-rank",
    "missing-rank",
    "truncated-dump",
    "detokenizer-stall",
    "engine-crash",
    "tensor-not-sent",
    "tensor-transposed",
    "tensor-stale",
    "buffer-zeroed",
)
"""Names of ``--inject-fault``; what follows a colon belongs to the drill."""


def stops_are_read(arguments: Arguments, machine: Machine) -> None:
    """Every ``--pause-at`` is a stop condition that this run can meet."""
    conditions = [parse_stop_condition(text) for text in arguments.run.pause_at]
    declared_metrics(arguments).check(conditions)


def triggers_are_read(arguments: Arguments, machine: Machine) -> None:
    """Every ``--dump-on`` is a trigger."""
    for text in arguments.debug.dump_on:
        parse_dump_trigger(text)


def someone_can_continue(arguments: Arguments, machine: Machine) -> None:
    """A run that pauses can be told to go on."""
    run = arguments.run
    if run.no_control and (run.walk or run.pause_at) and run.pause_limit is None:
        raise broken(
            arguments,
            "no_control",
            "nobody could continue the run after it paused",
            fix="leave it away, or give --pause-limit",
        )


def drill_is_known(arguments: Arguments, machine: Machine) -> None:
    """A drill is one of the known ones."""
    name = arguments.debug.inject_fault
    if name is not None and name.partition(":")[0] not in DRILLS:
        raise broken(
            arguments,
            "inject_fault",
            "no such drill",
            fix=f"use one of {', '.join(DRILLS)}",
        )


def checkpoints_have_a_place(arguments: Arguments, machine: Machine) -> None:
    """An interval of saving says where to."""
    checkpoint = arguments.checkpoint
    targets = (checkpoint.save, checkpoint.save_hf)
    if checkpoint.save_interval is not None and targets == (None, None):
        raise broken(
            arguments,
            "save_interval",
            "it is not said where to save",
            fix="give --save",
        )


RULES: Final[tuple[Rule, ...]] = (
    stops_are_read,
    triggers_are_read,
    someone_can_continue,
    drill_is_known,
    checkpoints_have_a_place,
)
