"""What may happen at a safe point, what is refused, and why.

Pure: state + input → new state + instructions. No Ray, clock, file or socket, so that
feeding a run's inputs again gives the same controller. `loop.py` only carries out.

    Started ──▶ RunStage ──▶ StageEnded ──▶ RunStage … ──▶ Finish
                                  │   ▲
                      pause, step,│   │ continue, step
                      stop, walk  ▼   │
                                 Pause
"""

from __future__ import annotations

from dataclasses import replace

from relax.controller.state import (
    AbortGeneration,
    Answer,
    Command,
    ControllerState,
    Done,
    Finish,
    HurryUp,
    Input,
    Instruction,
    Outcome,
    Pause,
    Phase,
    Resume,
    RunStage,
    SetStops,
    StageEnded,
    StageHeld,
    Started,
    Wish,
    Withdrawn,
)
from relax.errors import InternalError
from relax.events.types import CommandKind, Stage

_STEPS = (CommandKind.STEP_STAGE, CommandKind.STEP_ROLLOUT)


def react(state: ControllerState, happened: Input) -> Outcome:
    """The one transition function.

    Args:
        state: The state before.
        happened: What happened.

    Returns:
        The state after, and what is to be done, in order.

    Raises:
        InternalError: The input is impossible in this state.
    """
    match happened:
        case Started():
            return _started(state)
        case StageEnded():
            return _stage_ended(state, hit=happened.hit)
        case StageHeld():
            return _stage_held(state, why=happened.why)
        case Command():
            return _command(state, happened)


def refusal(state: ControllerState, kind: CommandKind) -> str:
    """Why a command is not possible now; '' when it is."""
    if state.phase is Phase.ENDED:
        return "the run has ended"
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
            return "" if state.wish else "no command waits for a safe point"
        case _:
            return ""


def after_stage(state: ControllerState) -> tuple[int, Stage]:
    """The ``(rollout_id, stage)`` that comes after the current one."""
    place = state.stages.index(state.stage)
    if place + 1 < len(state.stages):
        return state.rollout_id, state.stages[place + 1]
    return state.rollout_id + 1, state.stages[0]


def _started(state: ControllerState) -> Outcome:
    if state.phase is Phase.STOPPING:
        return _finish(state, "stopped")
    if state.phase is not Phase.STARTING:
        raise InternalError(f"a run that is {state.phase} cannot start")
    if state.rollout_id >= state.num_rollout:
        return _finish(state, "done")
    if state.wish:
        return _pause(state, "")
    return _run(state)


def _stage_ended(state: ControllerState, *, hit: str) -> Outcome:
    if state.phase not in (Phase.RUNNING, Phase.STOPPING):
        raise InternalError(f"a stage ended while the run was {state.phase}")
    rollout_id, stage = after_stage(state)
    over = rollout_id >= state.num_rollout
    stopping = state.phase is Phase.STOPPING
    ended = replace(
        state,
        last=state.stage,
        last_rollout=state.rollout_id,
        rollout_id=rollout_id,
        stage=stage,
    )
    if stopping:
        return _finish(ended, "stopped")
    if over:
        return _finish(ended, "done")
    due = _step_is_due(ended)
    if due or hit:
        return _pause(ended, hit)
    if state.walk and _walk_stops_after(state):
        return _pause(ended, "walk")
    return _run(ended)


def _stage_held(state: ControllerState, *, why: str) -> Outcome:
    if state.phase is Phase.STOPPING:
        return _finish(state, "stopped")
    if state.phase is not Phase.RUNNING:
        raise InternalError(f"a stage was held while the run was {state.phase}")
    return _pause(state, why)


def _step_is_due(state: ControllerState) -> bool:
    wish = state.wish
    if wish is None:
        return False
    return wish.kind is not CommandKind.STEP_ROLLOUT or state.last is state.stages[-1]


def _walk_stops_after(state: ControllerState) -> bool:
    """The guide's checks are due after these stages of the first rollout."""
    if state.rollout_id < state.first_rollout:
        return True
    before_train = Stage.TRAIN in state.stages and (
        after_stage(state) == (state.rollout_id, Stage.TRAIN)
    )
    return state.rollout_id == state.first_rollout and (
        state.stage in (Stage.GENERATE, Stage.TRAIN, Stage.UPDATE_WEIGHTS)
        or before_train
    )


def _run(state: ControllerState) -> Outcome:
    running = replace(state, phase=Phase.RUNNING, why="", by="")
    return running, (RunStage(rollout_id=state.rollout_id, stage=state.stage),)


def _pause(state: ControllerState, why: str) -> Outcome:
    wish = state.wish
    done: tuple[Instruction, ...] = ()
    by = ""
    if wish is not None:
        done = (Done(command_id=wish.command_id, kind=wish.kind, by=wish.by),)
        by = wish.by
        why = why or ("step" if wish.kind in _STEPS else "command")
    paused = replace(state, phase=Phase.PAUSED, wish=None, why=why, by=by)
    return paused, (Pause(why=why, by=by), *done)


def _finish(state: ControllerState, why: str) -> Outcome:
    done: tuple[Instruction, ...] = ()
    if (wish := state.wish) is not None:
        done = (Withdrawn(command_id=wish.command_id, kind=wish.kind, by=wish.by),)
    ended = replace(state, phase=Phase.ENDED, wish=None)
    return ended, (*done, Finish(why=why))


def _command(state: ControllerState, command: Command) -> Outcome:
    reason = _stale(state, command) or refusal(state, command.kind)
    if reason:
        return state, (Answer(command=command, accepted=False, reason=reason),)
    match command.kind:
        case CommandKind.PAUSE:
            return _accept_wish(state, command)
        case CommandKind.CONTINUE:
            return _accept_resume(replace(state, wish=None), command)
        case CommandKind.STEP_STAGE | CommandKind.STEP_ROLLOUT:
            return _accept_resume(_wishing(state, command), command)
        case CommandKind.SET_STOPS:
            done = _done(command)
            stops = SetStops(conditions=command.conditions)
            accepted = Answer(command=command, accepted=True)
            return replace(state, stops=command.conditions), (accepted, stops, done)
        case CommandKind.WITHDRAW:
            return _withdraw(state, command)
        case CommandKind.ABORT_GENERATION:
            answer = Answer(command=command, accepted=True)
            return state, (answer, AbortGeneration(), _done(command))
        case CommandKind.STOP | CommandKind.KILL:
            return _accept_stop(state, command)


def _done(command: Command) -> Done:
    return Done(command_id=command.id, kind=command.kind, by=command.by)


def _wishing(state: ControllerState, command: Command) -> ControllerState:
    wish = Wish(command_id=command.id, kind=command.kind, by=command.by)
    return replace(state, wish=wish)


def _accept_wish(state: ControllerState, command: Command) -> Outcome:
    return _wishing(state, command), (
        Answer(command=command, accepted=True, waits=True),
    )


def _accept_resume(state: ControllerState, command: Command) -> Outcome:
    step = command.kind in _STEPS
    answer = Answer(command=command, accepted=True, waits=step)
    # A continue means "go": it ends the walk's own stops only one at a time.
    running, run = _run(state)
    done: tuple[Instruction, ...] = () if step else (_done(command),)
    return running, (answer, Resume(by=command.by), *done, *run)


def _accept_stop(state: ControllerState, command: Command) -> Outcome:
    answer = Answer(command=command, accepted=True)
    at_once = command.kind is CommandKind.KILL
    if state.phase is Phase.PAUSED:
        ended, finish = _finish(state, "stopped")
        return ended, (answer, Resume(by=command.by), _done(command), *finish)
    taken: tuple[Instruction, ...] = ()
    if (wish := state.wish) is not None:
        taken = (Withdrawn(command_id=wish.command_id, kind=wish.kind, by=command.by),)
    stopping = replace(state, phase=Phase.STOPPING, wish=None, by=command.by)
    return stopping, (answer, *taken, _done(command), HurryUp(at_once=at_once))


def _withdraw(state: ControllerState, command: Command) -> Outcome:
    wish = state.wish
    if wish is None or (command.target and wish.command_id != command.target):
        reason = "that command does not wait any more"
        return state, (Answer(command=command, accepted=False, reason=reason),)
    answer = Answer(command=command, accepted=True)
    taken = Withdrawn(command_id=wish.command_id, kind=wish.kind, by=command.by)
    return replace(state, wish=None), (answer, taken, _done(command))


def _pause_refusal(state: ControllerState) -> str:
    if state.phase is Phase.PAUSED:
        return "the run is paused already"
    if state.wish is not None:
        return (
            f"a {state.wish.kind} by {state.wish.by} waits for the safe point already"
        )
    return ""


def _resume_refusal(state: ControllerState, kind: CommandKind) -> str:
    if state.phase is Phase.PAUSED:
        return ""
    if state.wish is not None:
        return f"a {state.wish.kind} by {state.wish.by} has not reached its safe point"
    what = "continue" if kind is CommandKind.CONTINUE else "step"
    return f"the run is {state.phase}, there is nothing to {what}; pause it first"


def _stale(state: ControllerState, command: Command) -> str:
    if command.attempt is not None and command.attempt != state.attempt:
        return f"the run is at attempt {state.attempt} now, not {command.attempt}"
    if command.mode is not None and command.mode != state.mode:
        return f"the run is in {state.mode} mode now, not {command.mode}"
    # Only what resumes depends on the very place: a pause or stop is right anywhere.
    if (
        command.kind not in (CommandKind.CONTINUE, *_STEPS)
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
