"""From a command line to the settings of a run, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relax.arguments.arguments import Arguments
from relax.arguments.flags import FlagTable, own_flags
from relax.arguments.parse import RawArguments, parse
from relax.arguments.passthrough import flag_table
from relax.arguments.resolve import resolve
from relax.arguments.validate import Machine, validate


def parse_arguments(
    argv: Sequence[str], *, has_gpu: bool = False, python: Path | None = None
) -> Arguments:
    """Reads, completes and checks the arguments of a run.

    Hooks named by path are checked apart, by `relax.arguments.hooks.check_hooks`,
    because that imports them.

    Args:
        argv: Words after the program's name.
        has_gpu: Whether the run has GPUs; without, GPU counts are slots.
        python: Interpreter that will train, whose megatron-core decides which of its
            settings there are; None is this one.

    Returns:
        All settings, each with its origin.

    Raises:
        ArgumentError: One sentence that names flag, value and fix; exit code 2.
    """
    raw, table = read_raw(argv, python=python)
    arguments = resolve(raw, table=table, has_gpu=has_gpu)
    validate(arguments, Machine(has_gpu=has_gpu))
    return arguments


def read_raw(
    argv: Sequence[str], *, python: Path | None = None
) -> tuple[RawArguments, FlagTable]:
    """What a command line and its files give, and the table it was read by.

    Args:
        argv: Words after the program's name.
        python: Interpreter that will train; None is this one.

    Raises:
        ArgumentError: A flag is unknown or refused, or its value not of its type.
    """
    table = flag_table(python=python, with_sglang=False)
    raw = parse(argv, table=table)
    names = [name for name in raw.values if name.startswith("sglang_")]
    if not any(name not in own_flags() for name in names):
        return raw, table
    # SGLang is set as well: its names are held against the version that will run.
    server = raw.values["sglang_python"].value if "sglang_python" in names else None
    table = flag_table(python=python, sglang_python=server)
    return parse(argv, table=table), table
