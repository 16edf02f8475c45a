"""Weights on the host, between processes that need not share a version of torch.

Ray hands numpy arrays over without copying them; numpy has no bfloat16, so such a
tensor travels as its bits, with its type beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_AS_BITS = {torch.bfloat16: torch.int16}


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A tensor of a type that numpy does not have.

    Attributes:
        bits: Its content as integers of the same width.
        dtype: Name of its torch type.
    """

    bits: NDArray[Any]
    dtype: str


HostValue = NDArray[Any] | HostTensor


def to_host(tensor: Tensor) -> HostValue:
    """A CPU tensor as it travels; shares its memory."""
    stored_as = _AS_BITS.get(tensor.dtype)
    if stored_as is None:
        return tensor.numpy()
    name = str(tensor.dtype).removeprefix("torch.")
    return HostTensor(bits=tensor.view(stored_as).numpy(), dtype=name)


def from_host(value: HostValue) -> Tensor | NDArray[Any]:
    """What an engine takes: the array as it came, or a tensor of the type it had."""
    if not isinstance(value, HostTensor):
        return value
    # The object store hands out memory that must not be written to, and nobody does.
    bits = value.bits if value.bits.flags.writeable else value.bits.copy()
    dtype: torch.dtype = vars(torch)[value.dtype]
    return torch.from_numpy(bits).view(dtype)


def bucket_from_host(
    bucket: Mapping[str, HostValue],
) -> dict[str, Tensor | NDArray[Any]]:
    """`from_host` for every tensor of a bucket."""
    return {name: from_host(value) for name, value in bucket.items()}
