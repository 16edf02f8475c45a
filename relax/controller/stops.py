"""Whether a stop condition holds at a safe point."""

from __future__ import annotations

from collections.abc import Iterable

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

    Raises:
        ArgumentError: A text is not a stop condition.
    """

    def __init__(self, texts: Iterable[str], *, first_rollout: int) -> None:
        self._first_rollout = first_rollout
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

    @staticmethod
    def check(texts: Iterable[str]) -> None:
        """Raises `ArgumentError` if a text is not a stop condition."""
        for text in texts:
            parse_stop_condition(text)

    def set(self, texts: tuple[str, ...]) -> None:
        """Replaces all conditions.

        Raises:
            ArgumentError: A text is not a stop condition.
        """
        self._conditions = tuple(map(parse_stop_condition, texts))

    def hit(
        self,
        *,
        following: tuple[int, Stage],
        metrics: Metrics,
        verdicts: Iterable[tuple[str, str]],
    ) -> str:
        """The first condition that holds, as its text; '' if none does.

        Args:
            following: ``(rollout_id, stage)`` that would run next.
            metrics: What the stage that just ended measured.
            verdicts: ``(rule id, status)`` given since the last safe point.
        """
        given = frozenset(status for _, status in verdicts)
        for condition in self._conditions:
            if self._holds(condition, following, metrics, given):
                return str(condition)
        return ""

    def _holds(
        self,
        condition: StopCondition,
        following: tuple[int, Stage],
        metrics: Metrics,
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
                    for key, metric in metrics.items()
                )
            case OnVerdict():
                return condition.verdict in given
