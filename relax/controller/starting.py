"""A run whose workers are not up yet: its socket is open already.

Who looks at the start-up sees what is up and what is waited for; who stops it is obeyed
at once. A pause, a step's condition or an order waits for the first safe point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from relax.control.protocol import CommandAnswer, CommandRequest, RunStatus, Stacks
from relax.controller.hands import Hands, StageResult
from relax.controller.loop import Controller, StageKilledError
from relax.controller.state import CarryOut, RunStage
from relax.controller.workers import Workers
from relax.errors import InternalError

_Result = TypeVar("_Result")


class HandsWhenUp:
    """Hands that get something to do when the workers are up.

    Args:
        workers: The run's actors; their processes can be looked at from the start.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._hands: Hands | None = None

    def up(self, hands: Hands) -> None:
        """From now on these carry out what is ordered."""
        self._hands = hands

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        """Runs one stage."""
        return await self._up().run(order, judge=judge)

    def evaluates(self, order: RunStage) -> bool:
        """As the stages say."""
        return self._up().evaluates(order)

    async def carry_out(self, order: CarryOut) -> str:
        """Carries an order out at a safe point."""
        return await self._up().carry_out(order)

    async def abort_generation(self) -> None:
        """Aborts what is being generated; before the start that is nothing."""
        if self._hands is not None:
            await self._hands.abort_generation()

    async def stacks(self) -> Stacks:
        """Python stacks of the processes that are up."""
        return await self._workers.stacks()

    def processes(self) -> Mapping[str, int]:
        """``{name: pid}`` of the processes that are up."""
        return self._workers.processes()

    def memory_bytes(self) -> Mapping[str, int]:
        """Resident memory by process."""
        return self._workers.memory_bytes()

    def cpu_seconds(self) -> Mapping[str, float]:
        """Processor time used, by process."""
        return self._workers.cpu_seconds()

    def _up(self) -> Hands:
        if self._hands is None:
            raise InternalError("a stage was ordered before the workers were up")
        return self._hands


class Reception:
    """What the control socket serves: the controller, and what has come up.

    Args:
        controller: Of the run.
        startup: ``{what: seconds since the driver's start}``; None while it is waited
            for. Read whenever somebody asks.
    """

    def __init__(
        self, controller: Controller, *, startup: Mapping[str, float | None]
    ) -> None:
        self._controller = controller
        self._startup = startup

    async def command(self, request: CommandRequest) -> CommandAnswer:
        """Accepts or refuses a command."""
        return await self._controller.command(request)

    def status(self) -> RunStatus:
        """The run as it is now, with what has come up."""
        status = self._controller.status()
        return status.model_copy(update={"startup": dict(self._startup)})

    async def stacks(self) -> Stacks:
        """Stacks of all processes."""
        return await self._controller.stacks()


async def unless_stopped(
    work: Coroutine[Any, Any, _Result], controller: Controller
) -> _Result:
    """Awaits the start-up, until somebody stops the run.

    Raises:
        StageKilledError: Somebody did.
    """
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(controller.ending.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    raise StageKilledError("the start-up")
