"""The embedded rollout engine: transformers on the CPU, inside this process.

It exists so that a run works anywhere within seconds, and as a forward pass that shares
no code with the trainer's. Batched, with a key-value cache; float32.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch

from relax.backends.embedded.model import load_model
from relax.backends.embedded.thread import EngineThread
from relax.backends.rollout import GenerateOutput, GenerateRequest


class EmbeddedEngine:
    """A `RolloutBackend` over a thread of this process; `open` makes one.

    Args:
        thread: Started already.
        hf_checkpoint: What it was loaded from.
    """

    def __init__(self, thread: EngineThread, *, hf_checkpoint: Path) -> None:
        self._thread = thread
        self._hf_checkpoint = hf_checkpoint

    @classmethod
    async def open(
        cls, hf_checkpoint: Path, *, batch_size: int, num_threads: int | None = None
    ) -> Self:
        """Load the model and start generating.

        Args:
            hf_checkpoint: Folder of model and tokenizer.
            batch_size: Most requests decoded together (``--embedded-batch-size``).
            num_threads: Threads of torch while generating; None: as many as torch is
                set to in the calling thread. They decide bits.

        Raises:
            EngineError: The checkpoint cannot be loaded.
        """
        thread = EngineThread(
            await asyncio.to_thread(load_model, hf_checkpoint),
            batch_size=batch_size,
            num_threads=torch.get_num_threads() if num_threads is None else num_threads,
        )
        thread.start()
        return cls(thread, hf_checkpoint=hf_checkpoint)

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Continue a prompt; see `RolloutBackend.generate`."""
        return await asyncio.wrap_future(self._thread.submit(request))

    async def abort(self) -> int:
        """End all requests; see `RolloutBackend.abort`."""
        return await asyncio.wrap_future(self._thread.call(self._thread.abort))

    async def begin_weight_update(self, version: str) -> None:
        """Open an update; see `RolloutBackend.begin_weight_update`."""
        await asyncio.wrap_future(self._thread.begin_update(version))

    async def update_weights(self, bucket: Mapping[str, Any]) -> None:
        """Take tensors; see `RolloutBackend.update_weights`."""
        weights = self._thread.weights
        await asyncio.wrap_future(self._thread.call(lambda: weights.update(bucket)))

    async def end_weight_update(self) -> str:
        """Close the update; see `RolloutBackend.end_weight_update`."""
        return await asyncio.wrap_future(self._thread.call(self._thread.weights.end))

    async def weights_fingerprint(self) -> str:
        """Fingerprint over what the engine holds, outside an update too."""
        weights = self._thread.weights
        return await asyncio.wrap_future(self._thread.call(weights.fingerprint))

    async def weights_digests(self) -> Mapping[str, str]:
        """Digests of what it holds; see `RolloutBackend.weights_digests`."""
        weights = self._thread.weights
        return await asyncio.wrap_future(self._thread.call(weights.digests))

    async def pause(self) -> None:
        """Stop between two tokens; see `RolloutBackend.pause`."""
        await asyncio.wrap_future(self._thread.call(self._thread.pause))

    async def resume(self) -> None:
        """Go on; see `RolloutBackend.resume`."""
        await asyncio.wrap_future(self._thread.call(self._thread.resume))

    async def health(self) -> dict[str, Any]:
        """Counts and flags; see `RolloutBackend.health`."""
        return {
            **self._thread.state(),
            "backend": "embedded",
            "model": str(self._hf_checkpoint),
        }

    async def close(self) -> None:
        """End the engine; see `RolloutBackend.close`."""
        await asyncio.to_thread(self._thread.close)
