"""Where a run is to pause, as a person writes it and as the controller asks it.

    start               before rollout 0, after the first weight update
    3:train             at the safe point before stage ``train`` of rollout 3
    *:train             the same in every rollout
    grad_norm > 10      after the step whose metric crosses the bound
    verdict:FAIL        when a check gives this verdict

A metric that is NaN satisfies every condition on it but ``==``: a person who asks to
stop when ``grad_norm > 10`` wants to stop when it is lost altogether.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from relax.arguments.refusal import refuse
from relax.events.types import Stage

VERDICTS: Final = ("PASS", "FAIL", "WARN", "INFO", "VACUOUS", "NOT_RUN", "NON_FINITE")
"""The verdicts a check can give."""

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_METRIC = re.compile(r"([A-Za-z_][\w/@.\-]*)\s*(>=|<=|==|!=|>|<)\s*(\S+)")
_FIX: Final = "write start, R:STAGE, 'grad_norm > 10' or verdict:FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtStart:
    """Before rollout 0, when the first weight update is done."""

    def __str__(self) -> str:
        return "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtStage:
    """At the safe point before a stage.

    Attributes:
        rollout_id: Rollout, or None for every one.
        stage: The stage that would run next.
    """

    rollout_id: int | None
    stage: Stage

    def __str__(self) -> str:
        rollout = "*" if self.rollout_id is None else str(self.rollout_id)
        return f"{rollout}:{self.stage.value}"

    def holds(self, *, rollout_id: int, stage: Stage) -> bool:
        """Whether the run, about to do ``stage`` of ``rollout_id``, is to pause."""
        return stage == self.stage and self.rollout_id in (None, rollout_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMetric:
    """When a metric crosses a bound.

    Attributes:
        metric: Name with or without prefixes: ``grad_norm`` or ``train/grad_norm``.
        comparison: One of > >= < <= == !=.
        bound: Finite number.
    """

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        short = f"{self.bound:g}"
        exact = short if float(short) == self.bound else repr(self.bound)
        return f"{self.metric} {self.comparison} {exact}"

    def names(self, metric: str) -> bool:
        """Whether ``metric``, with its prefix, is the one that is meant."""
        return metric == self.metric or metric.endswith(f"/{self.metric}")

    def holds(self, value: float | None) -> bool:
        """Whether ``value`` crosses the bound; an absent one never does."""
        if value is None:
            return False
        if math.isnan(value):
            return self.comparison != "=="
        return _COMPARISONS[self.comparison](value, self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnVerdict:
    """When a check gives a verdict.

    Attributes:
        verdict: One of `VERDICTS`.
    """

    verdict: str

    def __str__(self) -> str:
        return f"verdict:{self.verdict}"


StopCondition: TypeAlias = AtStart | AtStage | OnMetric | OnVerdict


def parse_stop_condition(text: str) -> StopCondition:
    """Reads one place to pause; ``str`` of the result reads back equal.

    Raises:
        ArgumentError: The text is none of the four forms, or names a stage, verdict or
            bound that does not exist.
    """
    stripped = text.strip()
    if stripped == "start":
        return AtStart()
    condition = parse_condition(text, flag="pause_at")
    if condition is not None:
        return condition
    rollout, colon, stage = stripped.partition(":")
    if colon:
        return _at_stage(text, rollout.strip(), stage.strip())
    raise refuse("pause_at", text, "no such place to pause", fix=_FIX)


def parse_condition(text: str, *, flag: str) -> OnMetric | OnVerdict | None:
    """Reads a condition on a metric or a verdict; None when it is neither.

    Args:
        text: As a person writes it.
        flag: The flag's field name, for the message.

    Raises:
        ArgumentError: The verdict does not exist, or the bound is not finite.
    """
    stripped = text.strip()
    if stripped.startswith("verdict:"):
        name = stripped.removeprefix("verdict:").strip().upper().replace("-", "_")
        if name not in VERDICTS:
            fix = f"use one of {', '.join(VERDICTS)}"
            raise refuse(flag, text, "no such verdict", fix=fix)
        return OnVerdict(verdict=name)
    match = _METRIC.fullmatch(stripped)
    if match is None:
        return None
    metric, comparison, bound = match.groups()
    try:
        number = float(bound)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise refuse(
            flag,
            text,
            f"{bound} is not a finite number",
            fix="write a bound such as 'grad_norm > 10'",
        )
    return OnMetric(metric=metric, comparison=comparison, bound=number)


def _at_stage(text: str, rollout: str, stage: str) -> AtStage:
    if rollout != "*" and not (rollout.isascii() and rollout.isdigit()):
        raise refuse("pause_at", text, f"{rollout!r} is not a rollout number", fix=_FIX)
    name = stage.replace("-", "_")
    if name not in {known.value for known in Stage}:
        stages = ", ".join(known.value for known in Stage)
        raise refuse(
            "pause_at", text, f"no stage {stage!r}", fix=f"use one of {stages}"
        )
    return AtStage(
        rollout_id=None if rollout == "*" else int(rollout), stage=Stage(name)
    )
