"""Watches a server: whether all its processes live, and whether tokens still flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from relax.backends.sglang.api import SglangApi
from relax.backends.sglang.server import ServerProcess
from relax.errors import EngineDied, EngineUnreachable

WATCH_SECONDS: Final = 0.5
BEAT_EVERY_SECONDS: Final = 2.0
BEATS_MISSED: Final = 2
"""From here on a server counts as stalled that is not known to be stopped: one that is
only slow answers the second time."""


class ServerWatch:
    """Waits for the end of a server.

    Args:
        server: Its process.
        api: Session with it.
        is_busy: Whether it ought to be making tokens just now.
    """

    def __init__(
        self, server: ServerProcess, *, api: SglangApi, is_busy: Callable[[], bool]
    ) -> None:
        self._server = server
        self._api = api
        self._is_busy = is_busy

    async def until_lost(self) -> EngineDied:
        """Returns, once it is lost, what happened."""
        watches = [
            asyncio.create_task(self._until_gone()),
            asyncio.create_task(self._until_stalled()),
        ]
        try:
            lost, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return lost.pop().result()
        finally:
            for watch in watches:
                watch.cancel()

    async def _until_gone(self) -> EngineDied:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                self._server.check()
            except EngineDied as error:
                return error

    async def _until_stalled(self) -> EngineDied:
        missed = 0
        while True:
            await asyncio.sleep(BEAT_EVERY_SECONDS)
            missed = 0 if await self._beats() else missed + 1
            stopped = self._server.stopped_part() if missed else ""
            if stopped or missed == BEATS_MISSED:
                how = f"its {stopped} is stopped" if stopped else "no part has ended"
                return EngineDied(
                    f"the SGLang server makes no tokens any more ({how}): "
                    f"{self._server.last_words()}",
                    where=str(self._server.log),
                )

    async def _beats(self) -> bool:
        """Whether tokens flow, or none are wanted."""
        if not self._is_busy():
            return True
        try:
            beats = await self._api.beat()
        except EngineUnreachable:
            beats = False
        # A pause or a weight update that began meanwhile explains the silence.
        return beats or not self._is_busy()
