"""What console and driver say to each other over the run's unix socket.

    POST /v1/command   CommandRequest  →  CommandAnswer
    GET  /v1/status                    →  RunStatus
    GET  /v1/stacks                    →  Stacks

Every request names the protocol version, its own id (repeating it is harmless: the
first answer comes again) and what its sender saw; if that is no longer so, the answer
is a refusal that says what is now. What became of an accepted command is an event of
type ``command`` with the same id.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    Order,
    ReplayOrder,
    RestartOrder,
    VerifyOrder,
)
from relax.events.types import CommandKind

PROTOCOL_VERSION = 1


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Seen(_Message):
    """What the sender saw when its person pressed the key.

    None means "whatever is now": a command that is right in any state, e.g. stop.
    """

    attempt: int | None = None
    rollout_id: int | None = None
    stage: str | None = None
    mode: str | None = None


class CommandRequest(_Message):
    """One command.

    Attributes:
        id: Unique; a repeated id gets the first answer again.
        by: Who asks, e.g. ``alice@login1:4242``.
        conditions: For ``set-stops``: all stop conditions, as their texts.
        target: For ``withdraw``: the id of the command to take back.
        dump, replay, mode: What is ordered, for the commands of these names.
    """

    protocol: int = PROTOCOL_VERSION
    id: str = Field(min_length=1, max_length=64)
    by: str = Field(max_length=200)
    kind: CommandKind
    seen: Seen = Seen()
    conditions: tuple[str, ...] = ()
    target: str = ""
    dump: DumpOrder | None = None
    replay: ReplayOrder | None = None
    mode: ModeOrder | None = None

    @property
    def order(self) -> Order | None:
        """The order that belongs to the command's kind."""
        match self.kind:
            case CommandKind.DUMP:
                return self.dump
            case CommandKind.REPLAY:
                return self.replay
            case CommandKind.MODE:
                return self.mode
            case CommandKind.RESTART_ENGINE:
                return RestartOrder()
            case CommandKind.VERIFY:
                return VerifyOrder()
            case _:
                return None


class CommandAnswer(_Message):
    """Accepted or refused.

    Attributes:
        reason: Why it was refused; '' when accepted.
        waits_for: The safe point an accepted command waits for, e.g.
            ``after generate of rollout 3``; '' when it acted at once.
        seconds: About how long until then; None when unknown.
    """

    id: str
    accepted: bool
    reason: str = ""
    waits_for: str = ""
    seconds: float | None = None


class ActionState(_Message):
    """Whether a command is possible now, and why not."""

    possible: bool
    reason: str = ""


class ConsoleSeen(_Message):
    """A console that talked to the run lately."""

    by: str
    seconds_ago: float


class RunStatus(_Message):
    """The run as it is now.

    Attributes:
        phase: ``starting``, ``running``, ``paused``, ``stopping``, ``killing`` or
            ``ended``.
        stage: The stage that runs, or comes next when paused; '' before the first.
        pending: Ids of accepted commands that wait for a safe point.
        busy: What is being carried out at this safe point; '' for nothing.
        excursion: The name of the one that the run is on; '' for none.
        actions: By `CommandKind` value.
        processes: ``{name: pid}`` of the run's processes.
        startup: ``{what: seconds}`` until it was up, since the driver's start; None
            while it is waited for.
    """

    protocol: int = PROTOCOL_VERSION
    run_id: str
    attempt: int
    phase: Literal["starting", "running", "paused", "stopping", "killing", "ended"]
    mode: str
    rollout_id: int
    num_rollout: int
    stage: str = ""
    stage_seconds: float = 0.0
    pending: tuple[str, ...] = ()
    busy: str = ""
    excursion: str = ""
    stop_conditions: tuple[str, ...] = ()
    actions: dict[str, ActionState] = {}
    consoles: tuple[ConsoleSeen, ...] = ()
    processes: dict[str, int] = {}
    startup: dict[str, float | None] = {}


class Stacks(_Message):
    """Python stacks of the run's processes, innermost line last.

    Attributes:
        stacks: ``{process: text}``; a process that did not answer is in ``missing``.
        missing: ``{process: why}``.
    """

    stacks: dict[str, str]
    missing: dict[str, str] = {}
