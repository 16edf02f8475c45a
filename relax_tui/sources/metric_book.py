"""The numbers of a run: newest values, curves over rollouts, the first rollout's."""

from __future__ import annotations

from collections.abc import Mapping

from relax.measure.reduction import Metrics, metric_values
from relax_tui.sources.base import Series

SERIES_KEYS = (
    "rollout/raw_reward",
    "rollout/kl",
    "rollout/kl_k3",
    "train/grad_norm",
    "rollout/entropy",
    "logprob_rollout/abs_diff",
    "logprob_rollout/max_abs",
    "rollout/response_len/mean",
    "rollout/truncated_ratio",
)
SERIES_POINTS = 2048
MERGED = "rollout"


class MetricBook:
    """Takes metrics in, by what gave them; a new giving replaces the whole last one.

    Attributes:
        first_rollout: The run's first rollout; None until it is known.
        first: Its metrics; those of its first step, when it has several.
    """

    def __init__(self) -> None:
        self.first_rollout: int | None = None
        self.first: dict[str, float] = {}
        self._given: dict[str, tuple[int, dict[str, float]]] = {}
        self._points: dict[str, dict[int, float]] = {key: {} for key in SERIES_KEYS}

    def take(self, rollout_id: int, metrics: Metrics, *, source: str) -> None:
        """Takes what a stage or step measured.

        Args:
            rollout_id: Where.
            metrics: What.
            source: The stage, or ``step``.
        """
        self.take_values(rollout_id, metric_values(metrics), source=source)

    def take_values(
        self, rollout_id: int, values: Mapping[str, float], *, source: str
    ) -> None:
        """As `take`, for numbers whose reduction is not known.

        Args:
            rollout_id: Where.
            values: What.
            source: The stage, ``step``, or a log.
        """
        if not values:
            return
        self._given[source] = (rollout_id, dict(values))
        if rollout_id == self.first_rollout:
            # Later steps do not replace what the first step said.
            self.first = {**values, **self.first}
        for key, points in self._points.items():
            if key in values:
                points[rollout_id] = values[key]
                if len(points) > SERIES_POINTS:
                    del points[next(iter(points))]

    def finish(self, rollout_id: int, metrics: Metrics) -> None:
        """Takes a rollout's merged metrics: only what no stage has said before."""
        known = {
            key
            for source, (_, values) in self._given.items()
            if source != MERGED
            for key in values
        }
        new = {key: value for key, value in metrics.items() if key not in known}
        self.take(rollout_id, new, source=MERGED)

    def latest(self) -> dict[str, float]:
        """The newest value of every metric."""
        parts = sorted(self._given.values(), key=lambda part: part[0])
        return {key: value for _, values in parts for key, value in values.items()}

    def rollouts(self) -> tuple[int, int] | None:
        """Oldest and newest rollout that the curves' newest values come from."""
        # Only what the curves show tells an age; an evaluation, say, is rare.
        ids = [
            number
            for number, values in self._given.values()
            if any(key in values for key in SERIES_KEYS)
        ]
        return (min(ids), max(ids)) if ids else None

    def series(self) -> Mapping[str, Series]:
        """The curves, all over the same rollouts."""
        ids = sorted({i for points in self._points.values() for i in points})
        return {
            key: Series(key=key, points=tuple(points.get(i) for i in ids))
            for key, points in self._points.items()
        }
