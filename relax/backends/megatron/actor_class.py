"""The training worker's actor class, made without importing megatron in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray


def train_worker(options: Mapping[str, Any], *, name: str) -> Any:
    """The actor class of `relax.backends.megatron.worker.TrainWorker`, with options."""
    return ray.remote(_TrainActor).options(**options, name=name)


class _TrainActor:
    """Imports the real worker in its own process and hands every call to it.

    ``ray.remote(TrainWorker)`` in the driver would import torch and megatron there:
    seconds of start-up and a few hundred megabytes for nothing.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        from relax.backends.megatron.worker import TrainWorker  # noqa: PLC0415

        self._worker = TrainWorker(*args, **settings)

    def host_meeting(self) -> str:
        return self._worker.host_meeting()

    def open(self, meeting: str) -> Any:
        return self._worker.open(meeting)

    def receive(self, rollout: Any) -> None:
        self._worker.receive(rollout)

    def ref_log_probs(self) -> Any:
        return self._worker.ref_log_probs()

    def log_probs(self, *, entropy: bool) -> Any:
        return self._worker.log_probs(entropy=entropy)

    def repeated(self) -> Any:
        return self._worker.repeated()

    def advantages(self) -> Any:
        return self._worker.advantages()

    def train(self) -> Any:
        return self._worker.train()

    def train_columns(self) -> Any:
        return self._worker.train_columns()

    def baselined(self, rewards: Any, groups: Any) -> Any:
        return self._worker.baselined(rewards, groups)

    def probe(self, request: Any) -> Any:
        return self._worker.probe(request)

    def mark(self, name: str) -> int:
        return self._worker.mark(name)

    def return_to(self, name: str) -> None:
        self._worker.return_to(name)

    def forget(self, name: str) -> None:
        self._worker.forget(name)

    def weights_versions(self) -> Any:
        return self._worker.weights_versions()

    def fingerprint(self) -> str:
        return self._worker.fingerprint()

    def weights_digests(self) -> Any:
        return self._worker.weights_digests()

    def digests(self) -> Any:
        return self._worker.digests()

    def export(self, *, bucket_bytes: int) -> Any:
        return self._worker.export(bucket_bytes=bucket_bytes)

    def save(self, path: Any, progress: Any) -> None:
        self._worker.save(path, progress)

    def save_hf(self, path: Any, version: Any = None) -> None:
        self._worker.save_hf(path, version)

    def close(self) -> None:
        self._worker.close()
