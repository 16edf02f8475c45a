"""Weights on their way into a server of this host, through memory without a name.

The memory is filled here and mapped there. It has no file that could be left behind:
the last process that holds it frees it, however it ends.
"""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT: Final = 64


class SharedMemory:
    """Memory that another process of this host can map; grows as needed."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("relax-weights", os.MFD_CLOEXEC)
        self.size = 0

    @property
    def path(self) -> str:
        """Where another process of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def fill(self, bucket: Mapping[str, Tensor | NDArray[Any]]) -> list[dict[str, Any]]:
        """Copies tensors into it, from its beginning on.

        Args:
            bucket: By name. Whoever reads must be done with what was there.

        Returns:
            ``name``, ``dtype``, ``shape`` and ``offset`` of each, as
            `relax.backends.sglang.loader.load` takes them.
        """
        placed: list[dict[str, Any]] = []
        offset = 0
        for name, tensor in bucket.items():
            placed.append(
                {
                    "name": name,
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "shape": list(tensor.shape),
                    "offset": offset,
                }
            )
            offset += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        if offset > self.size:
            os.ftruncate(self._descriptor, offset)
            self.size = offset
        for of, tensor in zip(placed, bucket.values(), strict=True):
            self._write(_bytes_of(tensor), at=of["offset"])
        return placed

    def close(self) -> None:
        """Frees it, once nobody else has it mapped."""
        os.close(self._descriptor)

    def _write(self, content: memoryview, *, at: int) -> None:
        # One call writes at most 2 GiB.
        while content.nbytes:
            written = os.pwrite(self._descriptor, content, at)
            content, at = content[written:], at + written


def named_call(name: str) -> str:
    """An empty tensor of that name, as ``update_weights_from_tensor`` takes it."""
    content = pickle.dumps([(name, _Empty())], protocol=pickle.HIGHEST_PROTOCOL)
    return base64.b64encode(content).decode("ascii")


class _Empty:
    """Unpickles as an empty tensor, and needs no memory shared for it."""

    def __reduce__(self) -> tuple[type[Tensor], tuple[()]]:
        return torch.Tensor, ()


def _bytes_of(tensor: Tensor | NDArray[Any]) -> memoryview:
    if isinstance(tensor, Tensor):
        # numpy has no bfloat16: the bytes are the same, whatever the type.
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        tensor = flat.view(torch.uint8).numpy()
    return memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
