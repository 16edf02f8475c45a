"""The control server: aiohttp on a unix socket, in the driver's own event loop.

No TCP port. The socket lies in a folder that only we may enter, is made under umask
0177, and every peer's uid is checked with SO_PEERCRED.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pydantic
from aiohttp import web

from relax.control.protocol import (
    PROTOCOL_VERSION,
    CommandAnswer,
    CommandRequest,
    ConsoleSeen,
    RunStatus,
    Stacks,
)

ANSWERS_KEPT = 1_000
CONSOLE_SECONDS = 60.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Commanded(Protocol):
    """What the server serves: the controller, seen from outside."""

    async def command(self, request: CommandRequest) -> CommandAnswer:
        """Accepts or refuses a command."""
        ...

    def status(self) -> RunStatus:
        """The run as it is now, without its consoles."""
        ...

    async def stacks(self) -> Stacks:
        """Stacks of all processes."""
        ...


class ControlServer:
    """Serves one run's socket.

    Args:
        controller: Who answers.
        path: The socket's path; a stale socket there is replaced.
    """

    def __init__(self, controller: Commanded, path: Path) -> None:
        self._controller = controller
        self._path = path
        self._runner: web.AppRunner | None = None
        self._answers: OrderedDict[str, CommandAnswer] = OrderedDict()
        self._consoles: dict[str, float] = {}

    async def start(self) -> None:
        """Binds the socket and serves."""
        app = web.Application(middlewares=[self._admit])
        app.router.add_post("/v1/command", self._command)
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/stacks", self._stacks)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        # The run folder's lock is ours, so whatever lies at this path is stale.
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, str(self._path)).start()
        finally:
            os.umask(before)

    async def stop(self) -> None:
        """Stops serving and removes the socket."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._path.unlink(missing_ok=True)

    @web.middleware
    async def _admit(
        self, request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        if _peer_uid(request) not in (os.getuid(), 0):
            return web.Response(status=403, text="this run belongs to another user")
        by = request.headers.get("X-Relax-By", "")
        if by:
            self._consoles[by[:200]] = time.monotonic()
        return await handler(request)

    async def _command(self, request: web.Request) -> web.Response:
        try:
            command = CommandRequest.model_validate_json(await request.read())
        except pydantic.ValidationError as error:
            return web.Response(status=400, text=f"not a command: {_first(error)}")
        if command.protocol != PROTOCOL_VERSION:
            text = f"the run speaks protocol {PROTOCOL_VERSION}, not {command.protocol}"
            return web.Response(status=400, text=text)
        answer = self._answers.get(command.id)
        if answer is None:
            answer = await self._controller.command(command)
            self._answers[command.id] = answer
            if len(self._answers) > ANSWERS_KEPT:
                self._answers.popitem(last=False)
        return _json(answer)

    async def _status(self, _request: web.Request) -> web.Response:
        now = time.monotonic()
        consoles = tuple(
            ConsoleSeen(by=by, seconds_ago=now - seen)
            for by, seen in self._consoles.items()
            if now - seen < CONSOLE_SECONDS
        )
        status = self._controller.status()
        return _json(status.model_copy(update={"consoles": consoles}))

    async def _stacks(self, _request: web.Request) -> web.Response:
        return _json(await self._controller.stacks())


def _json(message: pydantic.BaseModel) -> web.Response:
    return web.Response(text=message.model_dump_json(), content_type="application/json")


def _first(error: pydantic.ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _peer_uid(request: web.Request) -> int | None:
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport else None
    if peer is None:
        return None
    size = struct.calcsize("3i")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)
