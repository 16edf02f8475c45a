"""Why a command is not possible now, in words for the person who gave it.

Part of the machine, and as pure.
"""

from __future__ import annotations

from typing import Final

from relax.controller.errands import NEEDS_DATA, kind_refusal
from relax.controller.state import Command, ControllerState, Phase
from relax.events.types import CommandKind, Stage

STEPS: Final = (CommandKind.STEP_STAGE, CommandKind.STEP_ROLLOUT)


def refusal(state: ControllerState, kind: CommandKind) -> str:
    """Why a command is not possible now; '' when it is."""
    if state.phase is Phase.ENDED:
        return "the run has ended"
    if state.phase is Phase.KILLING:
        return "the run is being killed"
    if state.phase is Phase.STOPPING and kind is not CommandKind.KILL:
        return "the run is stopping"
    match kind:
        case CommandKind.PAUSE:
            return _pause_refusal(state)
        case CommandKind.CONTINUE | CommandKind.STEP_STAGE | CommandKind.STEP_ROLLOUT:
            return _resume_refusal(state, kind)
        case CommandKind.ABORT_GENERATION:
            generating = state.phase is Phase.RUNNING and state.stage is Stage.GENERATE
            return "" if generating else "nothing is being generated"
        case CommandKind.WITHDRAW:
            waits = state.wish or state.errands
            return "" if waits else "no command waits for a safe point"
        case _:
            return kind_refusal(state, kind)


def _pause_refusal(state: ControllerState) -> str:
    if state.phase is Phase.PAUSED:
        return "the run is paused already"
    if state.wish is not None:
        return (
            f"a {state.wish.kind} by {state.wish.by} waits for the safe point already"
        )
    return ""


def _resume_refusal(state: ControllerState, kind: CommandKind) -> str:
    if state.errand is not None:
        return f"a {state.errand.kind} by {state.errand.by} is being carried out"
    if state.phase is Phase.PAUSED:
        return NEEDS_DATA if state.needs_data else ""
    if state.wish is not None:
        return f"a {state.wish.kind} by {state.wish.by} has not reached its safe point"
    what = "continue" if kind is CommandKind.CONTINUE else "step"
    return f"the run is {state.phase}, there is nothing to {what}; pause it first"


def stale(state: ControllerState, command: Command) -> str:
    """Why what the sender saw is not so any more; '' when it is."""
    if command.attempt is not None and command.attempt != state.attempt:
        return f"the run is at attempt {state.attempt} now, not {command.attempt}"
    if command.mode is not None and command.mode != state.mode:
        return f"the run is in {state.mode} mode now, not {command.mode}"
    # Only what resumes depends on the very place: a pause or stop is right anywhere.
    if (
        command.kind not in (CommandKind.CONTINUE, *STEPS)
        or state.phase is not Phase.PAUSED
    ):
        return ""
    seen = (command.rollout_id, command.stage)
    now = (state.rollout_id, str(state.stage))
    if None not in seen and seen != now:
        return (
            f"the run is before {now[1]} of rollout {now[0]} now, not before "
            f"{seen[1]} of rollout {seen[0]}"
        )
    return ""
