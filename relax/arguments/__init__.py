"""Flags and files become the frozen settings of a run, each value with its origin.

    argv, YAML → parse → resolve → validate → Arguments (one dataclass an owner)

Nothing heavy is imported here or below, and the names are loaded when first used, so
that a console which only wants `relax.arguments.environment` pays for nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relax.arguments.arguments import Arguments
    from relax.arguments.hooks import check_hooks
    from relax.arguments.pause import StopCondition, parse_stop_condition
    from relax.arguments.read import parse_arguments
    from relax.arguments.show import asked_text, help_text, show_arguments

__all__ = [
    "Arguments",
    "StopCondition",
    "asked_text",
    "check_hooks",
    "help_text",
    "parse_arguments",
    "parse_stop_condition",
    "show_arguments",
]

_HOMES = {
    "Arguments": "arguments",
    "StopCondition": "pause",
    "asked_text": "show",
    "check_hooks": "hooks",
    "help_text": "show",
    "parse_arguments": "read",
    "parse_stop_condition": "pause",
    "show_arguments": "show",
}


def __getattr__(name: str) -> Any:
    """Loads a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
