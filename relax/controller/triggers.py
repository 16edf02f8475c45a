"""Rollouts that dump themselves: what ``--dump-on`` waits for."""

from __future__ import annotations

from collections.abc import Iterable

from relax.arguments.dump_on import fired, parse_dump_trigger
from relax.arguments.pause import OnVerdict
from relax.controller.hands import StageResult


class DumpTriggers:
    """Looks at the stages of one rollout after the other.

    Args:
        texts: As a person writes them (`relax.arguments.dump_on`).

    Raises:
        ArgumentError: A text is no trigger.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._triggers = tuple(map(parse_dump_trigger, texts))
        self._rollout_id: int | None = None
        self._metrics: dict[str, float | None] = {}
        self._verdicts: set[str] = set()
        self._dumped = False

    def __bool__(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self._triggers)

    @property
    def on_verdicts(self) -> bool:
        """Whether any needs the verdicts before a safe point is left."""
        return any(isinstance(trigger, OnVerdict) for trigger in self._triggers)

    def see(self, rollout_id: int, result: StageResult) -> None:
        """Takes what a stage of a rollout gave."""
        if rollout_id != self._rollout_id:
            self._rollout_id, self._dumped = rollout_id, False
            self._metrics, self._verdicts = {}, set()
        values = {name: metric.value for name, metric in result.metrics.items()}
        self._metrics.update(values)
        self._verdicts.update(status for _, status in result.verdicts)

    def why(self) -> str:
        """Why the rollout is to be dumped now; '' when it is not, or was already."""
        if self._dumped:
            return ""
        reason = fired(self._triggers, metrics=self._metrics, verdicts=self._verdicts)
        self._dumped = bool(reason)
        return reason
