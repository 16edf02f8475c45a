"""Orders at safe points: what may be ordered, and where the run is afterwards.

Part of the machine, and as pure: no Ray, clock, file or socket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    Order,
    ReplayKind,
    ReplayOrder,
    RestartOrder,
    VerifyOrder,
)
from relax.controller.modes import sides_of, stages_of
from relax.controller.state import Command, ControllerState, Errand, Excursion
from relax.errors import InternalError
from relax.events.types import CommandKind, Mode

ERRANDS: Final = (
    CommandKind.DUMP,
    CommandKind.REPLAY,
    CommandKind.MODE,
    CommandKind.RESTART_ENGINE,
    CommandKind.VERIFY,
)
NEEDS_DATA: Final = "no dump is chosen yet: `r` chooses one (relax-tui replay RUN DUMP)"

_NO_SIDE: Final = "this run holds no {side}: it was started as {mode}"


def kind_refusal(state: ControllerState, kind: CommandKind) -> str:
    """Why no order of this kind is possible now; '' when one is."""
    home = _home_mode(state)
    sides = sides_of(home)
    if kind is CommandKind.REPLAY and not sides.training:
        return _NO_SIDE.format(side="trainer", mode=home)
    if kind in (CommandKind.RESTART_ENGINE, CommandKind.VERIFY):
        return _engine_refusal(state)
    if kind is CommandKind.MODE:
        if _moving(state):
            return "another change of mode is under way"
        if not sides.training:
            return _NO_SIDE.format(side="trainer", mode=home)
        if not sides.rollout:
            return _NO_SIDE.format(side="rollout engine", mode=home)
        if home is not Mode.FULL:
            return f"excursions start from full mode, and this run is in {home} mode"
    return ""


def order_refusal(state: ControllerState, order: Order | None) -> str:
    """Why this very order is not possible now; '' when it is."""
    match order:
        case None:
            return "the command does not say what is ordered"
        case DumpOrder() | RestartOrder() | VerifyOrder():
            return ""
        case ReplayOrder():
            return _replay_refusal(state, order)
        case ModeOrder():
            return _mode_refusal(state, order)


def with_errand(state: ControllerState, command: Command) -> ControllerState:
    """The state with one more errand waiting."""
    if command.order is None:
        raise InternalError(f"a {command.kind} command has no order")
    opens = isinstance(command.order, ReplayOrder) or (
        isinstance(command.order, ModeOrder) and state.excursion is None
    )
    asides = state.asides + opens
    errand = Errand(
        command_id=command.id,
        kind=command.kind,
        by=command.by,
        order=command.order,
        name=f"x{asides}" if opens else "",
    )
    return replace(state, asides=asides, errands=(*state.errands, errand))


def moved(state: ControllerState, errand: Errand) -> ControllerState:
    """Where the run is after an errand that succeeded."""
    if isinstance(errand.order, ModeOrder):
        if state.excursion is None:
            return _entered(state, errand, errand.order)
        return _back(state, state.excursion)
    return replace(state, needs_data=False) if _chooses(state, errand) else state


def is_move(errand: Errand) -> bool:
    """Whether the errand changes the mode."""
    return isinstance(errand.order, ModeOrder)


def first_aside_rollout(state: ControllerState) -> int:
    """The rollout that an excursion from here would begin with: none that is begun."""
    begun = state.stage is not state.stages[0]
    return state.rollout_id + begun


def aside_of(state: ControllerState) -> str:
    """Name of the excursion's step that comes next; '' in the run itself."""
    excursion = state.excursion
    return f"{excursion.name}.{excursion.step}" if excursion else ""


def _chooses(state: ControllerState, errand: Errand) -> bool:
    """Whether a replay gives a train-only run the data that it lacks."""
    order = errand.order
    train = isinstance(order, ReplayOrder) and order.kind is ReplayKind.TRAIN
    return train and state.needs_data


def _entered(
    state: ControllerState, errand: Errand, order: ModeOrder
) -> ControllerState:
    home = Excursion(
        name=errand.name,
        mode=state.mode,
        stages=state.stages,
        rollout_id=state.rollout_id,
        stage=state.stage,
        last=state.last,
        last_rollout=state.last_rollout,
        walk=state.walk,
    )
    stages = stages_of(order.mode, has_reference=state.has_reference)
    return replace(
        state,
        mode=order.mode,
        stages=stages,
        rollout_id=first_aside_rollout(state),
        stage=stages[0],
        last=None,
        last_rollout=None,
        walk=False,
        excursion=home,
    )


def _back(state: ControllerState, home: Excursion) -> ControllerState:
    return replace(
        state,
        mode=home.mode,
        stages=home.stages,
        rollout_id=home.rollout_id,
        stage=home.stage,
        last=home.last,
        last_rollout=home.last_rollout,
        walk=home.walk,
        excursion=None,
    )


def _engine_refusal(state: ControllerState) -> str:
    home = _home_mode(state)
    if not sides_of(home).rollout:
        return _NO_SIDE.format(side="rollout engine", mode=home)
    if not sides_of(state.mode).rollout:
        return f"the engine is parked in {state.mode} mode; come back to {home} first"
    return ""


def _replay_refusal(state: ControllerState, order: ReplayOrder) -> str:
    sides = sides_of(_home_mode(state))
    if order.kind is ReplayKind.FORGE and not sides.rollout:
        return _NO_SIDE.format(side="rollout engine", mode=_home_mode(state))
    if state.needs_data and not order.source:
        return "no rollout is kept yet: name a dump"
    if order.repeat < 1:
        return f"a probe of {order.repeat} rounds is none"
    if order.samples and order.kind is not ReplayKind.PROBE:
        return f"a {order.kind} replay takes all samples"
    return ""


def _mode_refusal(state: ControllerState, order: ModeOrder) -> str:
    excursion = state.excursion
    if order.mode is state.mode:
        return f"the run is in {state.mode} mode already"
    if excursion is None:
        if order.keep:
            return "there is nothing to keep: the run is not on an excursion"
        return ""
    if order.mode is not excursion.mode:
        return f"come back to {excursion.mode} mode first"
    if not order.keep:
        return ""
    if state.mode is not Mode.TRAIN_ONLY:
        return f"a {state.mode} excursion makes nothing that could be kept"
    if excursion.stage is not excursion.stages[0]:
        return (
            f"the run was left before {excursion.stage} of rollout "
            f"{excursion.rollout_id}: what it has in hand belongs to the weights of "
            "then; come back without keeping"
        )
    return ""


def _home_mode(state: ControllerState) -> Mode:
    return state.excursion.mode if state.excursion else state.mode


def _moving(state: ControllerState) -> bool:
    under_way = (state.errand, *state.errands)
    return any(errand is not None and is_move(errand) for errand in under_way)
