"""What was known of each rollout when it was the newest, for looking back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from relax.events.types import Stage, StageFinished
from relax.measure.reduction import Metrics, metric_values
from relax.triage.verdict import Verdict
from relax_tui.sources.base import RunSnapshot, Series
from relax_tui.sources.metric_book import SERIES_KEYS
from relax_tui.sources.shape import stage_line, verdict_lines

MOMENTS = 512
"""Rollouts whose numbers are kept whole; a few kilobytes each."""

Place = tuple[int, int]


@dataclass(kw_only=True)
class Moment:
    """One rollout.

    Attributes:
        metrics: All that its stages measured.
        done: Its stages that ended.
        verdicts: What the checks said of it, by rule.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    done: dict[Stage, StageFinished] = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    vacuous: frozenset[str] = frozenset()


class History:
    """The newest rollouts, each by its attempt and id."""

    def __init__(self) -> None:
        self._moments: dict[Place, Moment] = {}

    def take(
        self, place: Place, metrics: Metrics, *, vacuous: Iterable[str] = ()
    ) -> None:
        """Takes in what was measured."""
        moment = self._at(place)
        moment.metrics.update(metric_values(metrics))
        moment.vacuous |= frozenset(vacuous)

    def end(self, place: Place, payload: StageFinished) -> None:
        """A stage ended."""
        self._at(place).done[payload.stage] = payload
        self.take(place, payload.metrics)

    def judge(self, place: Place, verdict: Verdict) -> None:
        """A check answered."""
        self._at(place).verdicts.setdefault(verdict.rule, []).append(verdict)

    def back(self, snapshot: RunSnapshot, place: Place) -> RunSnapshot:
        """A snapshot with what was known of one rollout in the place of the newest.

        Args:
            snapshot: Of the run as it is now.
            place: The rollout; one that is not kept any more shows nothing measured.
        """
        moment, rollout_id = self._moments.get(place) or Moment(), place[1]
        return replace(
            snapshot,
            series=self._series(place),
            latest=moment.metrics,
            latest_rollouts=(rollout_id, rollout_id),
            vacuous=moment.vacuous,
            verdicts=verdict_lines(moment.verdicts),
            stages=tuple(
                stage_line(stage, done=done, durations=(), running=False, slow="")
                for stage, done in moment.done.items()
            ),
            stages_rollout=rollout_id,
            following=False,
        )

    def _series(self, until: Place) -> Mapping[str, Series]:
        """The curves of an attempt as they were after a rollout."""
        attempt, last = until
        moments = [
            self._moments[place]
            for place in sorted(self._moments)
            if place[0] == attempt and place[1] <= last
        ]
        return {
            key: Series(key=key, points=tuple(m.metrics.get(key) for m in moments))
            for key in SERIES_KEYS
        }

    def _at(self, place: Place) -> Moment:
        if place not in self._moments:
            self._moments[place] = Moment()
            while len(self._moments) > MOMENTS:
                del self._moments[next(iter(self._moments))]
        return self._moments[place]
