"""Weight updates of a server, each verified by what the server then holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray
from torch import Tensor

from relax.backends.fingerprint import LM_HEAD, combined
from relax.backends.sglang.api import UPDATE_SECONDS, SglangApi
from relax.backends.sglang.capabilities import Capabilities
from relax.backends.sglang.command import INSIDE
from relax.backends.sglang.push import SharedMemory, named_call
from relax.errors import EngineError, EngineMismatch

INITIAL_VERSION: Final = "checkpoint"
SHOWN_NAMES: Final = 5


class ServerWeights:
    """The weights of one server, and an update of them that may be open.

    Args:
        api: Of the server.
        capabilities: What it can do.
        shapes: Of the checkpoint's tensors, by name.
    """

    def __init__(
        self,
        api: SglangApi,
        *,
        capabilities: Capabilities,
        shapes: Mapping[str, Sequence[int]],
    ) -> None:
        self._api = api
        self._session = capabilities.update_session
        self._shapes = shapes
        self._memory = SharedMemory()
        self._held: dict[str, dict[str, Any]] = {}
        self._missing: set[str] = set()
        self._incoming: str | None = None
        self.torn = False
        self.version = INITIAL_VERSION

    @property
    def updating(self) -> bool:
        """Whether an update is open."""
        return self._incoming is not None

    async def look(self) -> None:
        """Asks the server what it holds; updates are checked against it."""
        self._held = (await self.report())["tensors"]

    async def begin(self, version: str) -> None:
        """Opens an update.

        Raises:
            EngineError: Another one is open.
        """
        if self._incoming is not None:
            raise EngineError(
                f"weight update {self._incoming!r} is open, so {version!r} cannot begin"
            )
        await self._session_call("/begin_weight_update")
        self._incoming = version
        self._missing = set(self._held)

    async def update(self, bucket: Mapping[str, Tensor | NDArray[Any]]) -> None:
        """Sends some tensors. The whole bucket is checked before any is sent.

        Raises:
            EngineError: No update is open.
            EngineMismatch: Name, shape or type does not fit; names the tensor.
        """
        if self._incoming is None:
            raise EngineError("weights arrived and no weight update is open")
        for name, tensor in bucket.items():
            self._check(name, tensor)
        placed = await asyncio.to_thread(self._memory.fill, bucket)
        await self._call(
            "load",
            {"memory": self._memory.path, "size": self._memory.size, "tensors": placed},
            weight_version=self._incoming,
        )
        self._missing -= bucket.keys()

    async def end(self) -> str:
        """Closes the update.

        Returns:
            Fingerprint over what the server holds now.

        Raises:
            EngineMismatch: Tensors are missing; the weights count as torn from now on.
        """
        if self._incoming is None:
            raise EngineError("a weight update ended and none is open")
        version, self._incoming = self._incoming, None
        held = await self._read_held()
        # The cached keys and values are those of the weights before.
        await self._session_call("/end_weight_update")
        await self._api.post("/flush_cache", {}, seconds=UPDATE_SECONDS)
        self.torn = bool(self._missing)
        if self.torn:
            names = sorted(self._missing)
            more = len(names) - SHOWN_NAMES
            raise EngineMismatch(
                f"weight update {version!r} ended without {len(names)} of "
                f"{len(self._held)} tensors: {', '.join(names[:SHOWN_NAMES])}"
                + (f" and {more} more" if more > 0 else ""),
                hint="send every tensor of the model; the engine refuses requests now",
            )
        self.version = version
        return combined({name: of["digest"] for name, of in held.items()})

    async def close(self) -> None:
        """Frees what the weights were sent through."""
        await self.abandon()
        self._memory.close()

    async def abandon(self) -> None:
        """Closes an update that nobody will finish; its weights count as torn."""
        if self._incoming is None:
            return
        self._incoming, self.torn = None, True
        # The server may be gone, which is why nobody finishes it.
        with contextlib.suppress(EngineError):
            await self._session_call("/end_weight_update")

    async def report(self, *, values: Path | None = None) -> dict[str, Any]:
        """What the server holds: tensors and buffers by name, with digests.

        Args:
            values: Folder that takes the tensors themselves; None: none.

        Raises:
            EngineError: The witness inside the server failed.
        """
        await self._session_call("/begin_weight_update")
        try:
            return await self._witnessed(values=values)
        finally:
            await self._session_call("/end_weight_update")

    async def _read_held(self) -> dict[str, dict[str, Any]]:
        held: dict[str, dict[str, Any]] = (await self._witnessed())["tensors"]
        return held

    async def _witnessed(self, *, values: Path | None = None) -> dict[str, Any]:
        wanted = None if values is None else str(values)
        return await self._call(
            "inspect", {"shapes": dict(self._shapes), "values": wanted}
        )

    async def _call(
        self, do: str, request: Mapping[str, Any], *, weight_version: str | None = None
    ) -> dict[str, Any]:
        """Has something done inside the server; see `relax.backends.sglang.inside`."""
        with tempfile.TemporaryDirectory(prefix="relax-sglang-") as folder:
            place = Path(folder) / "answer.json"
            name = json.dumps({"do": do, "answer": str(place), **request})
            body = {
                "serialized_named_tensors": [named_call(name)],
                "load_format": INSIDE,
                # The cache is flushed once, when the update ends.
                "flush_cache": False,
                "weight_version": weight_version,
            }
            await self._api.post(
                "/update_weights_from_tensor", body, seconds=UPDATE_SECONDS
            )
            if not place.is_file():
                raise EngineError(
                    "the server's ranks each hold a part of the weights, and parts are "
                    "not compared yet",
                    hint="use one GPU per engine",
                )
            answer: dict[str, Any] = json.loads(place.read_text())
        if "error" in answer:
            raise EngineError(f"{do} failed inside the server: {answer['error']}")
        return answer

    async def _session_call(self, path: str) -> None:
        if self._session:
            await self._api.post(path, {}, seconds=UPDATE_SECONDS)

    def _check(self, name: str, tensor: Tensor | NDArray[Any]) -> None:
        held = self._held.get(name)
        if held is None:
            if name == LM_HEAD:
                raise EngineMismatch(
                    f"{LM_HEAD} was sent, and this model's output layer is tied",
                    hint="send the embedding only",
                )
            raise EngineMismatch(f"the engine's model has no tensor {name!r}")
        if list(tensor.shape) != held["shape"]:
            raise EngineMismatch(
                f"tensor {name!r} was sent as {tuple(tensor.shape)}, the engine's "
                f"model has {tuple(held['shape'])}"
            )
        sent_type = str(tensor.dtype).removeprefix("torch.")
        if sent_type != held["dtype"]:
            raise EngineMismatch(
                f"tensor {name!r} was sent as {sent_type}, the engine has "
                f"{held['dtype']}",
                hint=f"convert to {held['dtype']} before sending, so fingerprints "
                "compare",
            )
