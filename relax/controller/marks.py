"""Marking the state of a run over all its workers, and coming back to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relax.backends.ray_border import answer
from relax.controller.trainers import call_trainers
from relax.controller.workers import Workers


@dataclass(frozen=True, kw_only=True)
class RunMark:
    """A run's state: held by the workers under its name, and here.

    Attributes:
        num_bytes: What it takes on the hosts.
        digests: By rank: ``{path: sha256}`` of every tensor.
        cursor: Where the data source stands; None when nothing generates.
    """

    name: str
    num_bytes: int
    digests: Mapping[str, Mapping[str, str]]
    cursor: Mapping[str, Any] | None

    @property
    def tensors(self) -> int:
        """How many tensors there are, over all ranks."""
        return sum(len(digests) for digests in self.digests.values())


async def take_mark(workers: Workers, name: str) -> RunMark:
    """Marks weights, optimizer, random states, counters and the data cursor."""
    sizes = await call_trainers(workers, "mark", name)
    cursor = None
    if workers.runner is not None:
        cursor = await answer(workers.runner.cursor.remote(), worker="rollout-runner")
    return RunMark(
        name=name,
        num_bytes=sum(sizes),
        digests=await _digests(workers),
        cursor=cursor,
    )


async def return_to(workers: Workers, mark: RunMark) -> tuple[str, ...]:
    """Comes back to a mark, and lets go of it.

    Returns:
        ``rank: path`` of each tensor that is not as it was marked. Any is a defect.
    """
    await call_trainers(workers, "return_to", mark.name)
    if mark.cursor is not None:
        back = workers.runner.restore_cursor.remote(mark.cursor)
        await answer(back, worker="rollout-runner")
    now = await _digests(workers)
    await forget(workers, mark)
    return tuple(
        f"{rank}: {path}"
        for rank, before in mark.digests.items()
        for path in sorted(before.keys() | now[rank].keys())
        if before.get(path) != now[rank].get(path)
    )


async def forget(workers: Workers, mark: RunMark) -> None:
    """Lets go of a mark."""
    await call_trainers(workers, "forget", mark.name)


async def _digests(workers: Workers) -> dict[str, Mapping[str, str]]:
    found = await call_trainers(workers, "digests")
    return dict(zip(workers.trainers, found, strict=True))
