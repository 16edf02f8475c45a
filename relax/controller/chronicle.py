"""Where all that happens in a run is written down."""

from __future__ import annotations

from dataclasses import dataclass

from relax.controller.dumper import Dumper
from relax.controller.recorder import Recorder
from relax.controller.runlog import RunLog
from relax.controller.verdicts import Verdicts
from relax.events.append import EventWriter


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

    events: EventWriter
    log: RunLog
    recorder: Recorder
    verdicts: Verdicts
    dumper: Dumper
