"""The controller's state, what can happen to it, and what it can order.

Plain frozen data: the state survives a restart through the event log's snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from relax.control.orders import Order
from relax.events.types import CommandKind, Mode, Stage

FULL_STAGES = tuple(Stage)


class Phase(StrEnum):
    """Where the controller is."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    KILLING = "killing"
    ENDED = "ended"


ENDING = (Phase.STOPPING, Phase.KILLING)
"""A stage or an errand still runs, and the run ends with it."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """An accepted command that waits for a safe point."""

    command_id: str
    kind: CommandKind
    by: str


@dataclass(frozen=True, kw_only=True)
class Errand:
    """An accepted order that is carried out at a safe point.

    Attributes:
        name: Of its records, e.g. ``x2``; '' when it makes none.
    """

    command_id: str
    kind: CommandKind
    by: str
    order: Order
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Excursion:
    """Where the run is while it is not where it belongs.

    Attributes:
        name: E.g. ``x2``.
        step: Rollouts of it that are over.
        mode, stages, rollout_id, stage, last, last_rollout, walk: Of the run itself, to
            come back to.
    """

    name: str
    mode: Mode
    stages: tuple[Stage, ...]
    rollout_id: int
    stage: Stage
    last: Stage | None
    last_rollout: int | None
    walk: bool
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """The whole state of a controller.

    Attributes:
        stages: The stages of a rollout in this mode.
        first_rollout: The first rollout of this attempt; the weight update before it
            counts as the last stage of the rollout before.
        rollout_id: The rollout whose stage runs or comes next.
        stage: The stage that runs or comes next.
        last: The stage that ended last; None before the first.
        wish: A pause or step that waits for a safe point.
        stops: Stop conditions in force, as their texts.
        walk: Stop at the guide's checks of the first rollout.
        why, by: Of the current pause.
        ending: The stop, and the kill after it, that the run ends by; each is done when
            all processes are gone.
        errands: Orders that wait for a safe point, in turn.
        errand: The order that is being carried out at this one.
        held: What pauses the run once the errands of this safe point are done; None
            when nothing does.
        asides: Excursions and replays of this attempt so far.
        excursion: None in the run itself.
        needs_data: A train-only run for which nobody has chosen dumps yet.
        has_reference: Whether there is a reference model to score with.
    """

    attempt: int
    mode: Mode
    num_rollout: int
    first_rollout: int
    rollout_id: int
    stage: Stage
    stages: tuple[Stage, ...] = FULL_STAGES
    last: Stage | None = None
    last_rollout: int | None = None
    phase: Phase = Phase.STARTING
    wish: Wish | None = None
    stops: tuple[str, ...] = ()
    walk: bool = False
    why: str = ""
    by: str = ""
    ending: tuple[Wish, ...] = ()
    errands: tuple[Errand, ...] = ()
    errand: Errand | None = None
    held: str | None = None
    asides: int = 0
    excursion: Excursion | None = None
    needs_data: bool = False
    has_reference: bool = True


@dataclass(frozen=True, kw_only=True)
class Started:
    """Everything is up."""


@dataclass(frozen=True, kw_only=True)
class StageEnded:
    """The running stage ended; ``hit`` is the first stop condition that is true."""

    hit: str = ""


@dataclass(frozen=True, kw_only=True)
class StageHeld:
    """The stage that was ordered could not begin; ``why`` says what is missing."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, with what its sender saw (None: whatever is now)."""

    id: str
    kind: CommandKind
    by: str
    attempt: int | None = None
    mode: str | None = None
    rollout_id: int | None = None
    stage: str | None = None
    conditions: tuple[str, ...] = ()
    target: str = ""
    order: Order | None = None


@dataclass(frozen=True, kw_only=True)
class ErrandEnded:
    """The errand is over: ``did`` says what was done, ``failed`` why it was not."""

    did: str = ""
    failed: str = ""


Input: TypeAlias = Started | StageEnded | StageHeld | Command | ErrandEnded


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """Run this stage now; ``aside`` names the excursion's step that it is part of."""

    rollout_id: int
    stage: Stage
    aside: str = ""


@dataclass(frozen=True, kw_only=True)
class CarryOut:
    """Carry this errand out now; nothing else runs meanwhile.

    Attributes:
        rollout_id: The rollout that an excursion or a replay counts as.
    """

    errand: Errand
    rollout_id: int


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Wait at the safe point."""

    why: str
    by: str


@dataclass(frozen=True, kw_only=True)
class Resume:
    """The pause is over."""

    by: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer a command; ``waits`` says that it waits for the running stage's end."""

    command: Command
    accepted: bool
    reason: str = ""
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command was carried out; ``did`` says what was done, where that is news."""

    command_id: str
    kind: CommandKind
    by: str
    did: str = ""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """An accepted command could not be carried out; nothing has changed."""

    command_id: str
    kind: CommandKind
    by: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """An accepted command was taken back."""

    command_id: str
    kind: CommandKind
    by: str


@dataclass(frozen=True, kw_only=True)
class SetStops:
    """These stop conditions are in force now."""

    conditions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AbortGeneration:
    """Abort what is being generated; partial samples are kept."""


@dataclass(frozen=True, kw_only=True)
class HurryUp:
    """End the running stage if it can be ended, by force after a grace period."""

    at_once: bool


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The run is over: ``done`` or ``stopped``."""

    why: str


Instruction: TypeAlias = (
    RunStage | CarryOut | Pause | Resume | Answer | Done | Failed | Withdrawn
    | SetStops | AbortGeneration | HurryUp | Finish
)  # fmt: skip
Outcome: TypeAlias = tuple[ControllerState, tuple[Instruction, ...]]
