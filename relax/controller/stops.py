"""Whether a stop condition holds at a safe point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from relax.arguments.metric_names import MetricNames
from relax.arguments.pause import (
    AtStage,
    AtStart,
    OnMetric,
    OnVerdict,
    StopCondition,
    parse_stop_condition,
)
from relax.events.types import Stage
from relax.measure.reduction import Metrics


class StopConditions:
    """The stop conditions in force.

    Args:
        texts: As a person writes them (`relax.arguments.pause`).
        first_rollout: The first rollout of this attempt.
        known: The metrics that conditions can be on.

    Raises:
        ArgumentError: A text is not a stop condition, or one that never holds.
    """

    def __init__(
        self, texts: Iterable[str], *, first_rollout: int, known: MetricNames
    ) -> None:
        self._first_rollout = first_rollout
        self._known = known
        self._conditions: tuple[StopCondition, ...] = ()
        self.set(tuple(texts))

    @property
    def texts(self) -> tuple[str, ...]:
        """The conditions, as texts."""
        return tuple(map(str, self._conditions))

    @property
    def on_verdicts(self) -> bool:
        """Whether any condition needs the verdicts before a safe point is left."""
        return any(isinstance(c, OnVerdict) for c in self._conditions)

    def check(self, texts: Iterable[str]) -> tuple[StopCondition, ...]:
        """Reads conditions without setting them.

        Raises:
            ArgumentError: A text is not a stop condition, or is on a metric that this
                run does not have.
        """
        conditions = tuple(map(parse_stop_condition, texts))
        self._known.check(conditions)
        return conditions

    def set(self, texts: tuple[str, ...]) -> None:
        """Replaces all conditions.

        Raises:
            ArgumentError: As `check`.
        """
        self._conditions = self.check(texts)

    def hit(
        self,
        *,
        following: tuple[int, Stage],
        metrics: Sequence[Metrics],
        verdicts: Iterable[tuple[str, str]],
    ) -> str:
        """The first condition that holds, as its text; '' if none does.

        Args:
            following: ``(rollout_id, stage)`` that would run next.
            metrics: What the stage that just ended measured, once a step when it makes
                several.
            verdicts: ``(rule id, status)`` given since the last safe point.
        """
        given = frozenset(status for _, status in verdicts)
        for measured in metrics:
            self._known = self._known.with_measured(measured)
        if following[0] > self._first_rollout:
            # A whole rollout is over: the user's own hooks have told their names too.
            self._known = replace(self._known, complete=True)
        for condition in self._conditions:
            if self._holds(condition, following, metrics, given):
                return str(condition)
        return ""

    def _holds(
        self,
        condition: StopCondition,
        following: tuple[int, Stage],
        metrics: Sequence[Metrics],
        given: frozenset[str],
    ) -> bool:
        match condition:
            case AtStart():
                return following == (self._first_rollout, Stage.GENERATE)
            case AtStage():
                return condition.holds(rollout_id=following[0], stage=following[1])
            case OnMetric():
                return any(
                    condition.names(key) and condition.holds(metric.value)
                    for measured in metrics
                    for key, metric in measured.items()
                )
            case OnVerdict():
                return condition.verdict in given
