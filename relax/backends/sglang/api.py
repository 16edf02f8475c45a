"""The HTTP endpoints of an SGLang server, as far as relax uses them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from relax.errors import EngineError, EngineUnreachable

ANSWER_SECONDS: Final = 30.0
"""For questions that need no computing."""

BEAT_SECONDS: Final = 25.0
"""The server itself looks for 20 s before it says that its heart stands still."""

UPDATE_SECONDS: Final = 600.0
KEEP_ALIVE_SECONDS: Final = 1.0
"""The server hangs up on connections that are idle for 5 s; a request that is sent at
that moment would be lost."""
_SHOWN: Final = 500


class SglangApi:
    """A session with one server.

    Args:
        url: Base address, e.g. ``http://127.0.0.1:30000``.
        connections: Most requests in flight.
    """

    def __init__(self, url: str, *, connections: int) -> None:
        self.url = url
        self._session = aiohttp.ClientSession(
            # Control requests must get through while all others wait.
            connector=aiohttp.TCPConnector(
                limit=connections + 8, keepalive_timeout=KEEP_ALIVE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the session; requests in flight fail."""
        await self._session.close()

    async def healthy(self, *, seconds: float = 5.0) -> bool:
        """Whether the server answers that it is up."""
        try:
            async with asyncio.timeout(seconds):
                async with self._session.get(f"{self.url}/health") as response:
                    return response.status == aiohttp.http.HTTPStatus.OK
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def beat(self) -> bool:
        """Whether the server's parts still pass anything on.

        Answers within a second where tokens flow, and after 20 s without one.

        Raises:
            EngineUnreachable: Nobody answers at all.
        """
        try:
            await self._asked("GET", "/health_generate", None, seconds=BEAT_SECONDS)
        except EngineUnreachable:
            raise
        except EngineError:
            return False
        return True

    async def get(self, path: str) -> Any:
        """The JSON that a GET answers."""
        return await self._asked("GET", path, None, seconds=ANSWER_SECONDS)

    async def post(
        self, path: str, body: Mapping[str, Any], *, seconds: float | None = None
    ) -> Any:
        """The JSON that a POST answers.

        Args:
            path: Of the endpoint.
            body: Sent as JSON.
            seconds: How long to wait; None: for ever.

        Raises:
            EngineError: The server refused; carries its own words.
            EngineUnreachable: It does not answer.
        """
        return await self._asked("POST", path, body, seconds=seconds)

    async def _asked(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        seconds: float | None,
    ) -> Any:
        where = f"{self.url}{path}"
        if self._session.closed:
            raise EngineUnreachable("the session with it is over", where=where)
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, where, json=body) as response,
            ):
                content = await response.read()
                status = response.status
        except TimeoutError as error:
            raise EngineUnreachable(
                f"no answer within {seconds:.0f} s", where=where
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            said = str(error) or type(error).__name__
            raise EngineUnreachable(said, where=where) from error
        answer = _decoded(content)
        if status != aiohttp.http.HTTPStatus.OK:
            raise EngineError(_message(answer), where=f"{path} answered {status}")
        return answer


def _decoded(content: bytes) -> Any:
    if not content.strip():
        return {}
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "backslashreplace")


def _message(answer: Any) -> str:
    """The server's own words, out of the several shapes that it wraps them in."""
    if isinstance(answer, dict):
        inner = answer.get("error", answer)
        text = inner.get("message", inner) if isinstance(inner, dict) else inner
    else:
        text = answer
    return " ".join(str(text).split())[:_SHOWN]
