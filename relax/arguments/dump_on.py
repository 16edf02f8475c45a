"""When a run dumps a step by itself, as a person writes it and as the run asks it.

verdict:FAIL        when a check gives this verdict
nonfinite           when a metric is NaN or infinite, or non-finite values were counted
grad_norm > 10      when the metric crosses the bound
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from relax.arguments.pause import OnMetric, OnVerdict, parse_condition
from relax.arguments.refusal import refuse

_NON_FINITE: Final = "NON_FINITE"
_COUNTS: Final = ("nonfinite", "reward_nonfinite")
"""The last or first part of the names of metrics that count non-finite values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNonfinite:
    """When anything that counts, counts a value that is not finite."""

    def __str__(self) -> str:
        return "nonfinite"

    def holds(self, name: str, value: float | None) -> bool:
        """Whether this metric is, or counts, something that is not finite."""
        if value is None:
            return False
        parts = name.split("/")
        counts = parts[-1] in _COUNTS or "nonfinite" in parts[:-1]
        return not math.isfinite(value) or (counts and value > 0)


DumpTrigger: TypeAlias = OnMetric | OnVerdict | OnNonfinite


def parse_dump_trigger(text: str) -> DumpTrigger:
    """Reads one ``--dump-on``; ``str`` of the result reads back equal.

    Raises:
        ArgumentError: The text is none of the three forms.
    """
    if text.strip() == "nonfinite":
        return OnNonfinite()
    condition = parse_condition(text, flag="dump_on")
    if condition is None:
        raise refuse(
            "dump_on",
            text,
            "nothing that a dump can wait for",
            fix="write verdict:FAIL, nonfinite or 'grad_norm > 10'",
        )
    return condition


def fired(
    triggers: Iterable[DumpTrigger],
    *,
    metrics: Mapping[str, float | None],
    verdicts: Collection[str] = (),
) -> str:
    """The first reason to dump a step, in words; '' when there is none.

    Args:
        triggers: As `parse_dump_trigger` gives them.
        metrics: Values of the step by full name; None is absent.
        verdicts: What its checks gave, e.g. ``FAIL``.
    """
    for trigger in triggers:
        if isinstance(trigger, OnVerdict):
            if trigger.verdict in verdicts:
                return str(trigger)
            continue
        if isinstance(trigger, OnNonfinite) and _NON_FINITE in verdicts:
            return f"verdict:{_NON_FINITE}"
        for name, value in metrics.items():
            if isinstance(trigger, OnMetric):
                holds = trigger.names(name) and trigger.holds(value)
            else:
                holds = trigger.holds(name, value)
            if holds:
                return f"{trigger}: {name} is {value:g}"
    return ""
