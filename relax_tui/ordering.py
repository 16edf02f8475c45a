"""Giving a run an order without the console, and waiting for what comes of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relax.control.client import RunClient
from relax.control.orders import Order
from relax.control.run_folder import DriverState, driver_state, read_run_info
from relax.errors import ControlError
from relax.events.tail import EventTail
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    Payload,
    RunFailed,
    RunFinished,
)

POLL_SECONDS = 0.1
_OVER = (CommandPhase.DONE, CommandPhase.FAILED, CommandPhase.WITHDRAWN)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of an order.

    Attributes:
        did: What was done, in the run's words.
        seconds: From its acceptance on.
        events: All that happened in the run meanwhile.
    """

    did: str
    seconds: float
    events: tuple[Payload, ...]


async def give(
    run_dir: Path,
    kind: CommandKind,
    order: Order,
    *,
    on_wait: Callable[[str], None],
) -> Outcome:
    """Gives an order and waits until it is carried out.

    Args:
        run_dir: The run folder.
        kind: The order's.
        order: What to do.
        on_wait: Told which safe point it waits for, if it has to.

    Raises:
        ControlError: It was refused, failed or withdrawn, or the run ended first.
    """
    tail = EventTail(run_dir)
    tail.poll()
    client = RunClient(run_dir)
    command_id = uuid.uuid4().hex[:12]
    try:
        answer = await client.command(kind, order=order, command_id=command_id)
    finally:
        await client.close()
    if not answer.accepted:
        raise ControlError(f"{kind} was refused: {answer.reason}", where=str(run_dir))
    if answer.waits_for:
        on_wait(answer.waits_for)
    seen: list[Payload] = []
    while True:
        seen += [event.payload for event in tail.poll()]
        fate = _fate(seen, command_id)
        if fate is not None:
            break
        _refuse_dead(run_dir, seen, kind)
        await asyncio.sleep(POLL_SECONDS)
    if fate.phase is not CommandPhase.DONE:
        raise ControlError(f"{kind} {fate.phase}: {fate.reason}", where=str(run_dir))
    return Outcome(did=fate.reason, seconds=fate.seconds, events=tuple(seen))


def _fate(seen: list[Payload], command_id: str) -> Commanded | None:
    for payload in seen:
        if not isinstance(payload, Commanded) or payload.command_id != command_id:
            continue
        if payload.phase in _OVER:
            return payload
    return None


def _refuse_dead(run_dir: Path, seen: list[Payload], kind: CommandKind) -> None:
    over = any(isinstance(payload, RunFinished | RunFailed) for payload in seen)
    if over or driver_state(read_run_info(run_dir)) is DriverState.DEAD:
        raise ControlError(f"the run ended before the {kind}", where=str(run_dir))
