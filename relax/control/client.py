"""Talking to a run over its unix socket."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from pathlib import Path
from typing import TypeVar

import aiohttp
import pydantic

from relax.control.orders import DumpOrder, ModeOrder, Order, ReplayOrder
from relax.control.protocol import (
    CommandAnswer,
    CommandRequest,
    RunStatus,
    Seen,
    Stacks,
)
from relax.control.run_folder import (
    DriverState,
    driver_state,
    read_run_info,
)
from relax.errors import ControlError
from relax.events.tail import last_event
from relax.events.types import CommandKind, RunFailed, RunFinished

ANSWER_SECONDS = 10.0
_Answer = TypeVar("_Answer", CommandAnswer, RunStatus, Stacks)


def default_sender() -> str:
    """Who we are, as other consoles see it: ``user@host:pid``."""
    return f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"


class RunClient:
    """Commands for one run; one connection, used from one event loop.

    Args:
        run_dir: The run folder.
        by: Who asks; `default_sender` when left out.
    """

    def __init__(self, run_dir: Path, *, by: str = "") -> None:
        self._run_dir = run_dir
        self._by = by or default_sender()
        self._session: aiohttp.ClientSession | None = None
        self._socket = ""

    async def command(
        self,
        kind: CommandKind,
        *,
        seen: Seen | None = None,
        conditions: tuple[str, ...] = (),
        target: str = "",
        command_id: str = "",
        order: Order | None = None,
    ) -> CommandAnswer:
        """Sends one command.

        Args:
            kind: What to do.
            seen: What the person saw; None for "whatever is now".
            conditions: For ``set-stops``.
            target: For ``withdraw``.
            command_id: To repeat a command harmlessly; made when left out.
            order: For ``dump``, ``replay`` and ``mode``.

        Raises:
            ControlError: The run cannot be reached or speaks another protocol.
        """
        request = CommandRequest(
            id=command_id or uuid.uuid4().hex[:12],
            by=self._by,
            kind=kind,
            seen=seen or Seen(),
            conditions=conditions,
            target=target,
            dump=order if isinstance(order, DumpOrder) else None,
            replay=order if isinstance(order, ReplayOrder) else None,
            mode=order if isinstance(order, ModeOrder) else None,
        )
        return await self._ask(
            CommandAnswer, "POST", "/v1/command", request.model_dump_json()
        )

    async def status(self) -> RunStatus:
        """The run as it is now.

        Raises:
            ControlError: The run cannot be reached or speaks another protocol.
        """
        return await self._ask(RunStatus, "GET", "/v1/status")

    async def stacks(self) -> Stacks:
        """Python stacks of all processes of the run.

        Raises:
            ControlError: The run cannot be reached or speaks another protocol.
        """
        return await self._ask(Stacks, "GET", "/v1/stacks")

    async def close(self) -> None:
        """Closes the connection; the run goes on."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(
        self, answer_type: type[_Answer], method: str, path: str, body: str = ""
    ) -> _Answer:
        session = self._connect()
        try:
            async with session.request(
                method,
                f"http://run{path}",
                data=body or None,
                headers={"X-Relax-By": self._by, "Content-Type": "application/json"},
            ) as response:
                text = await response.text()
                if response.status != 200:
                    raise ControlError(
                        text.strip()[:300] or f"HTTP status {response.status}",
                        where=str(self._run_dir),
                    )
                return answer_type.model_validate_json(text)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ControlError(
                "the run does not answer",
                where=str(self._run_dir),
                hint=_why_silent(self._run_dir),
            ) from error
        except pydantic.ValidationError as error:
            raise ControlError(
                "the run speaks another version of the protocol",
                where=str(self._run_dir),
                hint="open it with --read-only, or with the relax-tui that started it",
            ) from error

    def _connect(self) -> aiohttp.ClientSession:
        info = read_run_info(self._run_dir)
        if not info.socket:
            raise ControlError(
                "this run was started with --no-control and takes no commands",
                where=str(self._run_dir),
            )
        # A resumed run has another socket path only if its runtime folder moved.
        if self._session is None or self._socket != info.socket:
            self._socket = info.socket
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path=info.socket),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
            )
        return self._session


def _why_silent(run_dir: Path) -> str:
    info = read_run_info(run_dir)
    match driver_state(info):
        case DriverState.DEAD:
            last = last_event(run_dir)
            if last is not None and isinstance(last.payload, RunFinished | RunFailed):
                return "the run has ended"
            return f"its driver (pid {info.pid}) is gone: the run was lost"
        case DriverState.OTHER_HOST:
            return f"it runs on {info.host}: `ssh {info.host}` and attach there"
        case DriverState.ALIVE:
            return f"its driver (pid {info.pid}) lives but is busy; try again"
