"""What may not be combined, what is missing: a rule a function, one sentence each.

Rules see resolved settings and the kind of machine; they touch nothing but the
existence of files. The first one that is broken is the error.
"""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.validate import (
    algorithm,
    batches,
    generation,
    layout,
    modes,
    paths,
    running,
)
from relax.arguments.validate.rule import Machine, Rule

RULES: Final[tuple[Rule, ...]] = (
    *modes.RULES,
    *algorithm.RULES,
    *layout.RULES,
    *batches.RULES,
    *generation.RULES,
    *running.RULES,
    *paths.RULES,
)
"""Every rule; files are looked for last."""

__all__ = ["RULES", "Machine", "Rule", "validate"]


def validate(arguments: Arguments, machine: Machine) -> None:
    """Holds the settings against every rule.

    Raises:
        ArgumentError: The first broken rule.
    """
    for rule in RULES:
        rule(arguments, machine)
