"""Where all that happens in a run is written down."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from relax.controller.dumper import Dumper, NoDumps
from relax.controller.recorder import Recorder
from relax.controller.runlog import RunLog
from relax.controller.verdicts import Verdicts
from relax.events.append import EventSink
from relax.events.encoding import as_aside
from relax.events.types import Payload


@dataclass(frozen=True, kw_only=True)
class Chronicle:
    """The writers of a run.

    Attributes:
        events: The event log.
        log: Lines for people.
        recorder: Step records.
        verdicts: Asks for the verdicts due after each stage.
        dumper: Keeps the last rollouts whole, and dumps them.
    """

    events: EventSink
    log: RunLog
    recorder: Recorder
    verdicts: Verdicts
    dumper: Dumper | NoDumps

    def aside(self, name: str, *, first_rollout: int, source: str) -> Chronicle:
        """The writers of an excursion or a replay: apart from the run's own.

        Args:
            name: E.g. ``x2``.
            first_rollout: The rollout that it begins with.
            source: ``excursion`` or ``replay``.
        """
        events = AsideEvents(self.events, name=name, first_rollout=first_rollout)
        return Chronicle(
            events=events,
            log=self.log,
            recorder=dataclasses.replace(
                self.recorder, aside=name, first_rollout=first_rollout, source=source
            ),
            verdicts=self.verdicts.told_to(events),
            dumper=NoDumps(),
        )


class AsideEvents:
    """Appends events so that they are no part of the run.

    Args:
        events: The event log.
        name: Of the excursion or replay.
        first_rollout: The rollout that it begins with.
    """

    def __init__(self, events: EventSink, *, name: str, first_rollout: int) -> None:
        self._events = events
        self._name = name
        self._first_rollout = first_rollout

    def append(self, payload: Payload, *, sync: bool = False) -> None:
        """Appends an event of a rollout under the name of its step."""
        rollout_id = vars(payload).get("rollout_id", self._first_rollout)
        step = f"{self._name}.{max(0, rollout_id - self._first_rollout)}"
        self._events.append(as_aside(step, payload), sync=sync)
