"""The controller's state, what can happen to it, and what it can order.

Plain frozen data: the state survives a restart through the event log's snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from relax.events.types import CommandKind, Mode, Stage

FULL_STAGES = tuple(Stage)


class Phase(StrEnum):
    """Where the controller is."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """An accepted command that waits for a safe point."""

    command_id: str
    kind: CommandKind
    by: str


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


Input: TypeAlias = Started | StageEnded | StageHeld | Command


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """Run this stage now."""

    rollout_id: int
    stage: Stage


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
    """A command was carried out."""

    command_id: str
    kind: CommandKind
    by: str


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
    RunStage | Pause | Resume | Answer | Done | Withdrawn | SetStops
    | AbortGeneration | HurryUp | Finish
)  # fmt: skip
Outcome: TypeAlias = tuple[ControllerState, tuple[Instruction, ...]]
