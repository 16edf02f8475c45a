"""What may happen at a safe point, what is refused, and why.

Pure: state + input → new state + instructions. No Ray, clock, file or socket, so that
feeding a run's inputs again gives the same controller. `loop.py` only carries out.

    Started ──▶ RunStage ──▶ StageEnded ──▶ RunStage … ──▶ Finish
                                  │   ▲
                      pause, step,│   │ continue, step
                      stop, walk  ▼   │
                                 Pause

Errands (dumps, replays, other modes) are carried out one after the other where the run
stands at a safe point, whether it pauses there or not.
"""

from __future__ import annotations

from dataclasses import replace

from relax.controller.errands import (
    ERRANDS,
    NEEDS_DATA,
    aside_of,
    first_aside_rollout,
    is_move,
    moved,
    order_refusal,
    with_errand,
)
from relax.controller.refusals import STEPS, refusal, stale
from relax.controller.state import (
    ENDING,
    AbortGeneration,
    Answer,
    CarryOut,
    Command,
    ControllerState,
    Done,
    Errand,
    ErrandEnded,
    Excursion,
    Failed,
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

__all__ = ["after_stage", "react", "refusal"]


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
        case ErrandEnded():
            return _errand_ended(state, happened)
        case Command():
            return _command(state, happened)


def after_stage(state: ControllerState) -> tuple[int, Stage]:
    """The ``(rollout_id, stage)`` that comes after the current one."""
    place = state.stages.index(state.stage)
    if place + 1 < len(state.stages):
        return state.rollout_id, state.stages[place + 1]
    return state.rollout_id + 1, state.stages[0]


def _started(state: ControllerState) -> Outcome:
    if state.phase in ENDING:
        return _finish(state, "stopped")
    if state.phase is not Phase.STARTING:
        raise InternalError(f"a run that is {state.phase} cannot start")
    running = replace(state, phase=Phase.RUNNING)
    if state.needs_data:
        return _safe_point(running, held=NEEDS_DATA)
    return _safe_point(running, held="" if state.wish else None)


def _stage_ended(state: ControllerState, *, hit: str) -> Outcome:
    if state.phase not in (Phase.RUNNING, *ENDING):
        raise InternalError(f"a stage ended while the run was {state.phase}")
    rollout_id, stage = after_stage(state)
    ended = replace(
        state,
        last=state.stage,
        last_rollout=state.rollout_id,
        rollout_id=rollout_id,
        stage=stage,
        excursion=_counted(state, over=rollout_id > state.rollout_id),
    )
    if state.phase in ENDING:
        return _finish(ended, "stopped")
    held = None
    if _step_is_due(ended) or hit:
        held = hit
    elif state.walk and _walk_stops_after(state):
        held = "walk"
    return _safe_point(ended, held=held)


def _counted(state: ControllerState, *, over: bool) -> Excursion | None:
    """The excursion, with one more rollout over."""
    excursion = state.excursion
    if excursion is None or not over:
        return excursion
    return replace(excursion, step=excursion.step + 1)


def _safe_point(state: ControllerState, *, held: str | None) -> Outcome:
    """Errands first; then the run pauses, ends or goes on."""
    here = replace(state, held=held)
    return _next_errand(here) if here.errands else _leave(here)


def _leave(state: ControllerState) -> Outcome:
    over = state.rollout_id >= state.num_rollout and state.excursion is None
    if over:
        return _finish(state, "done")
    # A pause that was asked for while errands were carried out holds here too.
    if state.held is not None or _step_is_due(state):
        return _pause(state, state.held or "")
    return _run(state)


def _next_errand(state: ControllerState) -> Outcome:
    first, *others = state.errands
    order = CarryOut(errand=first, rollout_id=first_aside_rollout(state))
    return replace(state, errand=first, errands=tuple(others)), (order,)


def _errand_ended(state: ControllerState, ended: ErrandEnded) -> Outcome:
    errand = state.errand
    if errand is None:
        raise InternalError("an errand ended that nobody sent")
    report = _report(errand, ended)
    free = replace(state, errand=None)
    after = free if ended.failed else moved(free, errand)
    if after.phase in ENDING:
        after, rest = _finish(after, "stopped")
    elif is_move(errand) and not ended.failed:
        after, rest = _at_new_place(after, errand)
    elif after.errands:
        after, rest = _next_errand(after)
    elif free.needs_data and not after.needs_data:
        after, rest = _run(after)
        rest = (Resume(by=errand.by), *rest)
    elif after.phase is Phase.PAUSED:
        rest = ()
    else:
        after, rest = _leave(after)
    return after, (report, *rest)


def _at_new_place(state: ControllerState, errand: Errand) -> Outcome:
    """A change of mode ends at a pause, so that a person sees where the run is."""
    excursion = state.excursion
    why = f"excursion {excursion.name}" if excursion else "back from an excursion"
    paused = replace(state, phase=Phase.PAUSED, why=why, by=errand.by, held=None)
    pause = Pause(why=why, by=errand.by)
    if not paused.errands:
        return paused, (pause,)
    busy, orders = _next_errand(paused)
    return busy, (pause, *orders)


def _report(errand: Errand, ended: ErrandEnded) -> Done | Failed:
    command_id, kind, by = errand.command_id, errand.kind, errand.by
    if ended.failed:
        return Failed(command_id=command_id, kind=kind, by=by, why=ended.failed)
    return Done(command_id=command_id, kind=kind, by=by, did=ended.did)


def _stage_held(state: ControllerState, *, why: str) -> Outcome:
    if state.phase in ENDING:
        return _finish(state, "stopped")
    if state.phase is not Phase.RUNNING:
        raise InternalError(f"a stage was held while the run was {state.phase}")
    return _safe_point(state, held=why)


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
    running = replace(state, phase=Phase.RUNNING, why="", by="", held=None)
    order = RunStage(
        rollout_id=state.rollout_id, stage=state.stage, aside=aside_of(state)
    )
    return running, (order,)


def _pause(state: ControllerState, why: str) -> Outcome:
    wish = state.wish
    done: tuple[Instruction, ...] = ()
    by = ""
    if wish is not None:
        done = (Done(command_id=wish.command_id, kind=wish.kind, by=wish.by),)
        by = wish.by
        why = why or ("step" if wish.kind in STEPS else "command")
    paused = replace(state, phase=Phase.PAUSED, wish=None, why=why, by=by, held=None)
    return paused, (Pause(why=why, by=by), *done)


def _finish(state: ControllerState, why: str) -> Outcome:
    ended = replace(state, phase=Phase.ENDED, wish=None, errands=())
    return ended, (*_taken_back(state), Finish(why=why))


def _taken_back(state: ControllerState, *, by: str = "") -> tuple[Instruction, ...]:
    """Everything that waits is withdrawn."""
    return tuple(
        Withdrawn(command_id=one.command_id, kind=one.kind, by=by or one.by)
        for one in _waiting(state)
    )


def _waiting(state: ControllerState) -> list[Wish | Errand]:
    """What waits for a safe point: a pause or step, and then the errands."""
    wishes: list[Wish | Errand] = [] if state.wish is None else [state.wish]
    return [*wishes, *state.errands]


def _command(state: ControllerState, command: Command) -> Outcome:
    reason = stale(state, command) or refusal(state, command.kind)
    if not reason and command.kind in ERRANDS:
        reason = order_refusal(state, command.order)
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
        case (
            CommandKind.DUMP
            | CommandKind.REPLAY
            | CommandKind.MODE
            | CommandKind.RESTART_ENGINE
            | CommandKind.VERIFY
        ):
            return _accept_errand(state, command)


def _accept_errand(state: ControllerState, command: Command) -> Outcome:
    waiting = with_errand(state, command)
    at_once = state.phase is Phase.PAUSED and state.errand is None
    answer = Answer(command=command, accepted=True, waits=not at_once)
    if not at_once:
        return waiting, (answer,)
    busy, orders = _next_errand(waiting)
    return busy, (answer, *orders)


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
    step = command.kind in STEPS
    answer = Answer(command=command, accepted=True, waits=step)
    # A continue means "go": it ends the walk's own stops only one at a time.
    running, run = _run(state)
    done: tuple[Instruction, ...] = () if step else (_done(command),)
    return running, (answer, Resume(by=command.by), *done, *run)


def _accept_stop(state: ControllerState, command: Command) -> Outcome:
    answer = Answer(command=command, accepted=True)
    wish = Wish(command_id=command.id, kind=command.kind, by=command.by)
    # Nobody has done it before the run is over: the loop tells when that is.
    ending = replace(state, ending=(*state.ending, wish))
    at_once = command.kind is CommandKind.KILL
    if state.phase is Phase.PAUSED and state.errand is None:
        ended, finish = _finish(ending, "stopped")
        return ended, (answer, Resume(by=command.by), *finish)
    taken = _taken_back(state, by=command.by)
    stopping = replace(
        ending,
        phase=Phase.KILLING if at_once else Phase.STOPPING,
        wish=None,
        errands=(),
        by=command.by,
    )
    return stopping, (answer, *taken, HurryUp(at_once=at_once))


def _withdraw(state: ControllerState, command: Command) -> Outcome:
    named = [w for w in _waiting(state) if command.target in ("", w.command_id)]
    if not named:
        reason = "that command does not wait any more"
        return state, (Answer(command=command, accepted=False, reason=reason),)
    newest = named[-1]
    left = replace(
        state,
        wish=None if newest is state.wish else state.wish,
        errands=tuple(errand for errand in state.errands if errand is not newest),
    )
    answer = Answer(command=command, accepted=True)
    taken = Withdrawn(command_id=newest.command_id, kind=newest.kind, by=command.by)
    return left, (answer, taken, _done(command))
