"""The stages of the rollout that runs, and how long they usually take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from relax.events.types import Stage, StageFinished, StageSlow
from relax_tui.sources.base import StageLine
from relax_tui.sources.shape import stage_line

DURATIONS = 100
IDLE = 2
# Innermost lines of a process that waits for others, or for work. A rank that hangs in
# a collective is waiting for the one that does not come: that one stands elsewhere.
_WAITS_FOR_RANKS = ("distributed_c10d.py", "in barrier", "in all_reduce", "in wait")
_WAITS_FOR_WORK = ("in main_loop", "selectors.py", "in _run_once", "in run_forever")


class StageBook:
    """Takes the events of stages in.

    Attributes:
        rollout_id: The rollout whose stages these are; None before the first.
    """

    def __init__(self) -> None:
        self.rollout_id: int | None = None
        self._done: dict[Stage, StageFinished] = {}
        self._durations: dict[Stage, deque[float]] = {}
        self._slow: dict[Stage, str] = {}

    def begin(self, rollout_id: int, stage: Stage) -> bool:
        """A stage began; whether it is the first one of another rollout."""
        another = rollout_id != self.rollout_id
        if another:
            self._done = {}
        self.rollout_id = rollout_id
        self._slow.pop(stage, None)
        return another

    def end(self, payload: StageFinished) -> None:
        """A stage ended."""
        self._done[payload.stage] = payload
        durations = self._durations.setdefault(payload.stage, deque(maxlen=DURATIONS))
        durations.append(payload.seconds)
        self._slow.pop(payload.stage, None)

    def slow(self, payload: StageSlow) -> str:
        """A stage takes too long; what there is to say of it, in one sentence."""
        places = "; ".join(stuck_first(payload.places))
        text = (
            f"{payload.stage} has run {payload.seconds:.0f} s, its median is"
            f" {payload.median_seconds:.1f} s"
        )
        self._slow[payload.stage] = places or text
        return f"{text}. {places}" if places else text

    def forget(self) -> None:
        """Another attempt begins; how long stages take is still true."""
        self.rollout_id = None
        self._done = {}
        self._slow.clear()

    def lines(self, *, first: int, running: str) -> tuple[StageLine, ...]:
        """All stages of the rollout.

        Args:
            first: The first rollout of the attempt.
            running: The stage that runs; '' when none does.
        """
        if self.rollout_id is None:
            return ()
        if self.rollout_id < first and not self._done:
            # Still starting: what comes up is shown instead.
            return ()
        return tuple(
            stage_line(
                stage,
                done=self._done.get(stage),
                durations=self._durations.get(stage, ()),
                running=str(stage) == running,
                slow=self._slow.get(stage, ""),
            )
            for stage in stages_of(self.rollout_id, first)
        )


def stages_of(rollout_id: int, first: int) -> Iterable[Stage]:
    """Before the first rollout there is only the first weight update."""
    return (Stage.UPDATE_WEIGHTS,) if rollout_id < first else Stage


def stuck_first(places: Mapping[str, str]) -> list[str]:
    """Where each process stands, the likeliest culprit first.

    Args:
        places: ``{process: innermost line of Python}``.

    Returns:
        ``process: line``: first who is in code of its own, then who waits for other
        ranks; last, by their names alone, those that wait for work.
    """
    ordered = sorted(places.items(), key=lambda item: _waiting(item[1]))
    busy = [(name, place) for name, place in ordered if _waiting(place) < IDLE]
    idle = [name for name, place in ordered if _waiting(place) == IDLE]
    told = [f"{name}: {place or 'in no Python code'}" for name, place in busy]
    return [*told, f"idle: {', '.join(idle)}"] if idle else told


def _waiting(place: str) -> int:
    if any(word in place for word in _WAITS_FOR_WORK):
        return IDLE
    return 1 if any(word in place for word in _WAITS_FOR_RANKS) else 0
