"""Weights on their way out: HF-named CPU tensors in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from relax.errors import ArgumentError


def buckets(
    tensors: Iterable[tuple[str, Tensor]], *, bucket_bytes: int
) -> Iterator[dict[str, Tensor]]:
    """Copies tensors to the host, bucket by bucket.

    Args:
        tensors: Name and tensor, on any device.
        bucket_bytes: A bucket holds at most this much; a tensor that alone is larger
            gets one of its own.

    Yields:
        Name → contiguous CPU tensor that shares memory with no other.

    Raises:
        ArgumentError: ``bucket_bytes`` is not positive.
    """
    if bucket_bytes < 1:
        raise ArgumentError(f"a bucket of {bucket_bytes} bytes holds no tensor")
    bucket: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if bucket and size + tensor.nbytes > bucket_bytes:
            yield bucket
            bucket, size = {}, 0
        bucket[name] = _host_copy(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


def _host_copy(tensor: Tensor) -> Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype)
    return host.copy_(tensor.detach())
