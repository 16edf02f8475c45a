"""What a rule is, and how it says that it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from relax.arguments.arguments import DEFAULT, Arguments
from relax.arguments.refusal import refuse
from relax.errors import ArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the caller knows about the hardware; finding out would load torch.

    Attributes:
        has_gpu: Whether the run has GPUs.
    """

    has_gpu: bool


Rule: TypeAlias = Callable[[Arguments, Machine], None]


def broken(arguments: Arguments, name: str, problem: str, *, fix: str) -> ArgumentError:
    """The error of a broken rule: flag and value from the settings themselves.

    Args:
        arguments: The settings.
        name: Flag that is to blame.
        problem: What is wrong.
        fix: What to write instead.
    """
    value = arguments.values()[name]
    shown = None if isinstance(value, bool) else value
    origin = arguments.origins.get(name, DEFAULT)
    return refuse(name, shown, problem, fix=fix, origin=origin)
