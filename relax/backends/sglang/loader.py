"""Runs inside the server: loads weights from memory that another process filled."""

from __future__ import annotations

import mmap
import os
from typing import Any

import torch
from torch import Tensor


def load(
    model: Any, *, memory: str, size: int, tensors: list[dict[str, Any]]
) -> dict[str, Any]:
    """Loads tensors into the model, by the model's own loader.

    Args:
        model: As SGLang built it.
        memory: Path under which the memory can be opened.
        size: Its length in bytes.
        tensors: ``name`` (of the checkpoint), ``dtype``, ``shape`` and ``offset`` each.

    Returns:
        ``loaded``: how many.
    """
    descriptor = os.open(memory, os.O_RDWR)
    try:
        # Private: the model must never write what the sender has.
        mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE)
    finally:
        os.close(descriptor)
    model.load_weights([(of["name"], _view(mapped, of)) for of in tensors])
    return {"loaded": len(tensors)}


def _view(mapped: mmap.mmap, of: dict[str, Any]) -> Tensor:
    dtype: torch.dtype = vars(torch)[of["dtype"]]
    count = 1
    for size in of["shape"]:
        count *= size
    if not count:
        return torch.empty(of["shape"], dtype=dtype)
    flat = torch.frombuffer(mapped, dtype=dtype, count=count, offset=of["offset"])
    return flat.view(of["shape"])
