"""Lets requests through, or holds them: at a pause and at a weight update."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Aborted(Exception):
    """The request was held here when everything was aborted."""


class Gate:
    """Counts who is inside; closed, it lets nobody in."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._held: set[asyncio.Future[None]] = set()
        self.inside = 0

    @property
    def waiting(self) -> int:
        """Requests that are held."""
        return len(self._held)

    @asynccontextmanager
    async def pass_through(self) -> AsyncIterator[None]:
        """Waits until the gate is open, and counts as inside.

        Raises:
            Aborted: `abort_held` was called while waiting.
        """
        while not self._open.is_set():
            await self._hold()
        self.inside += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._idle.set()

    async def _hold(self) -> None:
        aborted = asyncio.get_running_loop().create_future()
        opened = asyncio.ensure_future(self._open.wait())
        self._held.add(aborted)
        try:
            await asyncio.wait({aborted, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held.discard(aborted)
            opened.cancel()
        if aborted.done():
            raise Aborted

    def close(self) -> None:
        """Holds whoever comes from now on."""
        self._open.clear()

    def open(self) -> None:
        """Lets everybody through."""
        self._open.set()

    async def until_idle(self) -> None:
        """Waits until nobody is inside."""
        await self._idle.wait()

    def abort_held(self) -> int:
        """Turns away those who wait; gives how many."""
        held = [future for future in self._held if not future.done()]
        for future in held:
            future.set_result(None)
        return len(held)
