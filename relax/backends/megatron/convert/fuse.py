"""Fusing and splitting weights: the arithmetic of `convert.table.Fuse`, nothing else.

All tensors here are one tensor rank's part, or whole when there is one rank; the
functions cannot tell. Nothing is computed, rows only move: splitting what was fused is
bitwise the identity.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relax.backends.megatron.convert.table import Fuse
from relax.backends.megatron.model.hf_config import ModelShape


def fuse(parts: Sequence[Tensor], how: Fuse, shape: ModelShape) -> Tensor:
    """HF tensors to one megatron parameter.

    Args:
        parts: The HF tensors of the rule, in its order.
        how: The rule's way.
        shape: Head counts and widths.

    Returns:
        The parameter.
    """
    if how is Fuse.QKV:
        width = shape.kv_channels
        query, key, value = parts
        groups = key.shape[0] // width
        rest = key.shape[1:]
        by_group = [part.reshape(groups, -1, *rest) for part in (query, key, value)]
        return torch.cat(by_group, dim=1).reshape(-1, *rest)
    if how is Fuse.GATE_UP:
        return torch.cat(list(parts))
    (part,) = parts
    return part


def split(parameter: Tensor, how: Fuse, shape: ModelShape) -> list[Tensor]:
    """One megatron parameter to its HF tensors: the inverse of `fuse`."""
    if how is Fuse.QKV:
        width = shape.kv_channels
        rest = parameter.shape[1:]
        rows = shape.heads_per_group * width
        by_group = parameter.reshape(-1, rows + 2 * width, *rest)
        pieces = by_group.split([rows, width, width], dim=1)
        return [piece.reshape(-1, *rest) for piece in pieces]
    if how is Fuse.GATE_UP:
        return list(parameter.chunk(2))
    return [parameter]


def pad_rows(tensor: Tensor, rows: int) -> Tensor:
    """The tensor with rows of zeros appended until it has ``rows``."""
    padding = tensor.new_zeros(rows - tensor.shape[0], *tensor.shape[1:])
    return torch.cat([tensor, padding])
