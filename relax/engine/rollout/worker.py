"""The engine worker: owns one rollout engine, as a Ray actor.

A plain asyncio class; `relax.controller.workers` makes it an actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.backends.rollout import GenerateOutput, GenerateRequest, RolloutBackend
from relax.observe.worker_process import log_path, prepare_worker


@dataclass(frozen=True, kw_only=True)
class EngineOpened:
    """What an engine's worker says of itself once it is up.

    Attributes:
        pid: Its own.
        servers: Pid of each process that it started, by name.
        files: Left behind if this worker and its servers are killed.
    """

    pid: int
    servers: Mapping[str, int] = field(default_factory=dict)
    files: Sequence[Path] = ()


class RolloutWorker:
    """One rollout engine.

    Args:
        arguments: Of the run.
        run_dir: The run folder, for the worker's own log.
        name: The worker's name, e.g. ``engine-0``.
    """

    def __init__(self, arguments: Arguments, *, run_dir: Path, name: str) -> None:
        self._pid = prepare_worker(run_dir, name)
        self._arguments = arguments
        self._run_dir = run_dir
        self._name = name
        self._engine: RolloutBackend

    async def open(self) -> EngineOpened:
        """Loads the engine, or starts its server."""
        # Torch and transformers are imported where the engine is, nowhere else.
        import torch  # noqa: PLC0415

        torch.set_num_threads(self._arguments.cluster.threads_per_actor)
        if self._arguments.rollout.rollout_backend == "sglang":
            return await self._open_sglang()
        return await self._open_embedded()

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Continues a prompt."""
        return await self._engine.generate(request)

    async def abort(self) -> int:
        """Ends all requests; gives how many."""
        return await self._engine.abort()

    async def receive_weights(self, buckets: Sequence[Any], *, version: str) -> str:
        """Takes a whole update.

        Args:
            buckets: Ray references; each holds ``{HF name: host value}``.
            version: Of these weights.

        Returns:
            Fingerprint of what the engine now holds.
        """
        from relax.backends.host_tensor import bucket_from_host  # noqa: PLC0415

        await self._engine.begin_weight_update(version)
        for bucket in buckets:
            await self._engine.update_weights(bucket_from_host(await bucket))
        return await self._engine.end_weight_update()

    async def weights_digests(self) -> Mapping[str, str]:
        """What the engine holds; see `RolloutBackend.weights_digests`."""
        return await self._engine.weights_digests()

    async def checkpoint_digests(self) -> Mapping[str, str]:
        """sha256 of each tensor of the checkpoint, in the run's precision."""
        from relax.backends.checkpoint_digests import (  # noqa: PLC0415
            checkpoint_digests,
        )

        return await asyncio.to_thread(
            checkpoint_digests,
            self._checkpoint(),
            dtype=self._arguments.megatron.precision,
        )

    async def health(self) -> Mapping[str, Any]:
        """State of the engine; see `RolloutBackend.health`."""
        return await self._engine.health()

    async def restart(self) -> EngineOpened:
        """Ends the engine, if it is not gone already, and loads it again."""
        await self._engine.close()
        return await self.open()

    async def close(self) -> None:
        """Ends the engine."""
        await self._engine.close()

    async def _open_embedded(self) -> EngineOpened:
        from relax.backends.embedded.engine import EmbeddedEngine  # noqa: PLC0415

        self._engine = await EmbeddedEngine.open(
            self._checkpoint(),
            batch_size=self._arguments.rollout.embedded_batch_size,
        )
        return EngineOpened(pid=self._pid)

    async def _open_sglang(self) -> EngineOpened:
        import torch  # noqa: PLC0415

        from relax.backends.sglang.command import ServerSettings  # noqa: PLC0415
        from relax.backends.sglang.engine import SglangEngine  # noqa: PLC0415
        from relax.backends.sglang.environment import sglang_python  # noqa: PLC0415

        rollout = self._arguments.rollout
        settings = ServerSettings(
            python=await asyncio.to_thread(sglang_python, rollout.sglang_python),
            model=self._checkpoint(),
            context_length=rollout.rollout_max_context_len,
            # The types must be the trainer's, or nothing could be compared.
            arguments={"dtype": self._arguments.megatron.precision, **rollout.sglang},
            has_gpu=torch.cuda.is_available(),
            threads=self._arguments.cluster.threads_per_actor,
            seed=self._arguments.data.rollout_seed,
        )
        name = self._name.replace("engine", "sglang")
        engine = await SglangEngine.open(
            settings,
            log=log_path(self._run_dir, name),
            connections=rollout.sglang_server_concurrency,
        )
        self._engine = engine
        return EngineOpened(
            pid=self._pid,
            servers={name: engine.pid},
            files=sorted(engine.leaves_behind),
        )

    def _checkpoint(self) -> Path:
        return Path(str(self._arguments.checkpoint.hf_checkpoint))
