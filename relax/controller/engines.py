"""The rollout engines of a run, asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relax.backends.ray_border import answer

if TYPE_CHECKING:
    from relax.controller.workers import Workers


async def each_engine(
    engines: Mapping[str, Any], method: str, **arguments: Any
) -> dict[str, Any]:
    """What a method gives on each of some engines; waits for all of them.

    Args:
        engines: Actors by name.
        method: Of `relax.engine.rollout.worker.RolloutWorker`.
        **arguments: Of the method.

    Raises:
        EngineError: One of them failed.
    """
    calls = {
        name: answer(getattr(engine, method).remote(**arguments), worker=name)
        for name, engine in engines.items()
    }
    answers = await asyncio.gather(*calls.values(), return_exceptions=True)
    for error in answers:
        if isinstance(error, BaseException):
            raise error
    return dict(zip(calls, answers, strict=True))


async def restart_engines(workers: Workers) -> tuple[str, ...]:
    """Starts engines again that are gone; all of them when none is.

    Args:
        workers: Of the run.

    Returns:
        Their names.

    Raises:
        EngineError: One cannot be started.
    """
    health = await each_engine(workers.engines, "health")
    gone = {
        name: workers.engines[name]
        for name, told in health.items()
        if not told["alive"]
    }
    opened = await each_engine(gone or workers.engines, "restart")
    workers.note_engines(opened)
    return tuple(opened)
