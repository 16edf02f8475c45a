"""An SGLang server as a `relax.backends.rollout.RolloutBackend`."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from relax.backends.rollout import ABORTED, GenerateOutput, GenerateRequest
from relax.backends.sglang.answers import parse_output, request_body
from relax.backends.sglang.api import ANSWER_SECONDS, SglangApi
from relax.backends.sglang.capabilities import Capabilities, probe
from relax.backends.sglang.command import ServerSettings
from relax.backends.sglang.gate import Aborted, Gate
from relax.backends.sglang.server import ServerProcess
from relax.backends.sglang.watch import WATCH_SECONDS, ServerWatch
from relax.backends.sglang.weights import ServerWeights
from relax.errors import EngineDied, EngineError, EngineMismatch, EngineUnreachable


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What requests are checked against before they are sent.

    Attributes:
        vocab_size: Ids from here on do not exist; on a CPU one of them ends the server.
        context: Most tokens of prompt and response.
        end_ids: The model's own end tokens.
        shapes: Of the checkpoint's tensors, by name.
    """

    vocab_size: int
    context: int
    end_ids: Set[int]
    shapes: Mapping[str, Sequence[int]]

    @classmethod
    def read(cls, checkpoint: Path) -> Self:
        """From a checkpoint's ``config.json`` and ``generation_config.json``.

        Raises:
            EngineError: They are not there, or not what they should be.
        """
        try:
            config = json.loads((checkpoint / "config.json").read_text())
            path = checkpoint / "generation_config.json"
            generation = json.loads(path.read_text()) if path.is_file() else {}
            end = generation.get("eos_token_id", config.get("eos_token_id"))
            ends = end if isinstance(end, list) else [end]
            return cls(
                vocab_size=int(config["vocab_size"]),
                context=int(config["max_position_embeddings"]),
                end_ids=frozenset(int(each) for each in ends if each is not None),
                shapes=checkpoint_shapes(checkpoint),
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise EngineError(
                f"its configuration cannot be read: {error!r}", where=str(checkpoint)
            ) from error


def checkpoint_shapes(checkpoint: Path) -> dict[str, list[int]]:
    """Shapes of a checkpoint's tensors, by name; only headers are read."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                shapes[name] = list(file.get_slice(name).get_shape())
    return shapes


class SglangEngine:
    """A server of our own and the session with it; `open` makes one.

    Args:
        server: Started.
        api: Session with it.
        capabilities: What it can do.
        model: What requests are checked against.
    """

    def __init__(
        self,
        server: ServerProcess,
        *,
        api: SglangApi,
        capabilities: Capabilities,
        model: ModelFacts,
    ) -> None:
        self.capabilities = capabilities
        self._server = server
        self._api = api
        self._model = model
        self._weights = ServerWeights(
            api, capabilities=capabilities, shapes=model.shapes
        )
        self._gate = Gate()
        self._paused = False
        self._closed = False
        self._death: EngineDied | None = None
        self._generated = 0
        watch = ServerWatch(server, api=api, is_busy=self._is_busy)
        self._watch = asyncio.create_task(self._until_lost(watch))

    @classmethod
    async def open(
        cls, settings: ServerSettings, *, log: Path, connections: int
    ) -> Self:
        """Starts a server and waits until it answers.

        Args:
            settings: What it is started with.
            log: File that takes the server's output.
            connections: Most requests in flight.

        Raises:
            EngineError: It cannot be started; carries its own words.
        """
        # Read first: a folder that is no checkpoint should not cost a start.
        model = ModelFacts.read(settings.model)
        settings = replace(
            settings, context_length=settings.context_length or model.context
        )
        server = ServerProcess(settings, log=log)
        await server.start()
        try:
            return await cls.attach(
                server,
                has_gpu=settings.has_gpu,
                model=model,
                connections=connections,
            )
        except BaseException:
            await server.stop()
            raise

    @classmethod
    async def attach(
        cls,
        server: ServerProcess,
        *,
        has_gpu: bool,
        model: ModelFacts,
        connections: int,
    ) -> Self:
        """Opens a session with a server that is up.

        Args:
            server: Started.
            has_gpu: Whether it runs on a GPU.
            model: What requests are checked against.
            connections: Most requests in flight.

        Raises:
            EngineError: It is not an SGLang server as relax needs it.
        """
        api = SglangApi(server.url, connections=connections)
        engine = None
        try:
            able = await probe(api, has_gpu=has_gpu)
            engine = cls(server, api=api, capabilities=able, model=model)
            await engine._weights.look()
        except BaseException:
            if engine is not None:
                await engine.detach()
            await api.close()
            raise
        return engine

    @property
    def pid(self) -> int:
        """The server's; it leads a session of its own."""
        return self._server.pid

    @property
    def leaves_behind(self) -> frozenset[Path]:
        """Files to remove if nobody comes to `close` it."""
        return self._server.shared

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Continue a prompt; see `RolloutBackend.generate`."""
        room = self._room(request)
        try:
            async with self._gate.pass_through():
                self._refuse_torn()
                answer = await self._generate(request, room=room)
        except Aborted:
            return self._empty()
        output = parse_output(
            answer,
            request=request,
            end_ids=self._model.end_ids,
            cut=room < request.sampling.max_new_tokens,
        )
        self._generated += len(output.output_ids)
        return output

    async def abort(self) -> int:
        """End all requests; see `RolloutBackend.abort`."""
        held, running = self._gate.abort_held(), self._gate.inside
        if running:
            body = {"rid": "", "abort_all": True}
            await self._ask("/abort_request", body)
        return held + running

    async def begin_weight_update(self, version: str) -> None:
        """Open an update; see `RolloutBackend.begin_weight_update`."""
        if self._paused and self._gate.inside:
            raise EngineError(
                f"{self._gate.inside} requests are paused and would never finish, so "
                f"weight update {version!r} cannot begin",
                hint="resume the engine, or abort the requests",
            )
        if not self._weights.updating:
            self._gate.close()
            await self._gate.until_idle()
        await self._alive(self._weights.begin(version))

    async def update_weights(self, bucket: Mapping[str, Any]) -> None:
        """Take tensors; see `RolloutBackend.update_weights`."""
        await self._alive(self._weights.update(bucket))

    async def end_weight_update(self) -> str:
        """Close the update; see `RolloutBackend.end_weight_update`."""
        try:
            fingerprint: str = await self._alive(self._weights.end())
        finally:
            if not self._paused:
                self._gate.open()
        return fingerprint

    async def weights_report(self, *, values: Path | None = None) -> dict[str, Any]:
        """What the server holds; see `ServerWeights.report`."""
        report: dict[str, Any] = await self._alive(self._weights.report(values=values))
        return report

    async def weights_digests(self) -> dict[str, str]:
        """Digests of what it holds; see `RolloutBackend.weights_digests`."""
        report = await self.weights_report()
        return {name: str(of["digest"]) for name, of in report["tensors"].items()}

    async def pause(self) -> None:
        """Stop between two tokens; see `RolloutBackend.pause`."""
        self._gate.close()
        self._paused = True
        # Keys and values stay: the weights do not change while requests are paused.
        await self._ask("/pause_generation", {"mode": "in_place"})

    async def resume(self) -> None:
        """Go on; see `RolloutBackend.resume`."""
        await self._ask("/continue_generation", {})
        self._paused = False
        if not self._weights.updating:
            self._gate.open()

    async def health(self) -> dict[str, Any]:
        """Counts and flags; see `RolloutBackend.health`."""
        return {
            "alive": self._death is None and not self._closed,
            "running": self._gate.inside,
            "waiting": self._gate.waiting,
            "paused": self._paused,
            "generated_tokens": self._generated,
            "weight_version": self._weights.version,
            "backend": "sglang",
            "version": self.capabilities.version,
            "url": self._server.url,
        }

    async def close(self) -> None:
        """End the server; see `RolloutBackend.close`."""
        await self.detach()
        await self._server.stop()

    async def detach(self) -> None:
        """Ends the session; the server goes on. Requests still running fail."""
        self._closed = True
        self._watch.cancel()
        self._gate.abort_held()
        await self._weights.close()
        await self._api.close()

    async def _generate(self, request: GenerateRequest, *, room: int) -> Any:
        body = request_body(
            request,
            rid=f"{request.request_id}-{uuid.uuid4().hex[:8]}",
            max_new_tokens=min(room, request.sampling.max_new_tokens),
            seeded=self.capabilities.seeds,
        )
        return await self._alive(self._api.post("/generate", body))

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._alive(self._api.post(path, body, seconds=ANSWER_SECONDS))

    async def _alive(self, work: Any) -> Any:
        """Awaits an answer; says that the server died when that is why none came."""
        try:
            return await work
        except EngineUnreachable as error:
            if self._closed:
                raise EngineDied("the engine was closed") from error
            # The watch may notice a moment after the connection broke.
            for _ in range(4):
                if self._death is not None:
                    raise self._death from error
                await asyncio.sleep(WATCH_SECONDS / 2)
            raise

    async def _until_lost(self, watch: ServerWatch) -> None:
        self._death = await watch.until_lost()
        self._gate.abort_held()
        await self._api.close()
        await self._server.stop()

    def _is_busy(self) -> bool:
        held = self._paused or self._weights.updating
        return self._gate.inside > 0 and not held

    def _room(self, request: GenerateRequest) -> int:
        """Tokens that the context leaves; refuses what the server must not be sent."""
        if self._closed or self._death is not None:
            raise self._death or EngineDied("the engine was closed")
        outside = [i for i in request.input_ids if not 0 <= i < self._model.vocab_size]
        if outside:
            raise EngineError(
                f"token id {outside[0]} is outside the vocabulary of "
                f"{self._model.vocab_size}",
                where=request.request_id,
            )
        room = self._model.context - len(request.input_ids)
        if room < 1:
            raise EngineError(
                f"a prompt of {len(request.input_ids)} tokens fills the context of "
                f"{self._model.context}",
                where=request.request_id,
            )
        return room

    def _refuse_torn(self) -> None:
        if self._weights.torn:
            raise EngineMismatch(
                "the last weight update was incomplete, so weights of two versions are "
                "mixed",
                hint="send a complete update",
            )

    def _empty(self) -> GenerateOutput:
        if self._death is not None:
            raise self._death
        if self._closed:
            raise EngineDied("the engine was closed")
        return GenerateOutput(
            output_ids=(),
            log_probs=np.zeros(0, np.float32),
            finish="abort",
            stop_reason=ABORTED,
            weight_version=self._weights.version,
        )
