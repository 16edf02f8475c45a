"""What became of each command, as events."""

from __future__ import annotations

import time

from relax.controller.state import Answer, Done, Failed, Wish, Withdrawn
from relax.events.append import EventSink
from relax.events.types import Commanded, CommandPhase


class CommandLedger:
    """Tells when a command is accepted or refused, and how it ended.

    Args:
        events: The event log.
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._accepted: dict[str, float] = {}

    def answered(self, answer: Answer) -> None:
        """A command was accepted or refused."""
        command = answer.command
        phase = CommandPhase.ACCEPTED if answer.accepted else CommandPhase.REFUSED
        self._events.append(
            Commanded(
                command_id=command.id,
                kind=command.kind,
                phase=phase,
                by=command.by,
                reason=answer.reason,
            )
        )
        if answer.accepted:
            self._accepted[command.id] = time.monotonic()

    def ended(
        self,
        command: Done | Failed | Withdrawn | Wish,
        phase: CommandPhase,
        reason: str,
    ) -> None:
        """An accepted command was carried out, withdrawn, or went wrong."""
        now = time.monotonic()
        self._events.append(
            Commanded(
                command_id=command.command_id,
                kind=command.kind,
                phase=phase,
                by=command.by,
                reason=reason,
                seconds=now - self._accepted.pop(command.command_id, now),
            )
        )
