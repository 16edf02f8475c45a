"""A key-value cache whose rows can be dropped and joined while decoding.

transformers' own cache copies itself for each token. This one grows in blocks and
writes the new token in place. All rows end at the same column; shorter ones are padded
on the left.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

BLOCK = 64
"""Columns allocated beyond what is needed."""


class BlockLayer(DynamicLayer):
    """Keys and values of one layer: [rows, heads, columns, head size]."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Append columns; returns all keys and all values."""
        start = self.keys.shape[-2] if self.is_initialized else 0
        end = start + key_states.shape[-2]
        if not self._blocks or self._blocks[0].shape[-2] < end:
            self._grow(key_states, start=start, capacity=end + BLOCK)
        for block, states in zip(self._blocks, (key_states, value_states), strict=True):
            block[:, :, start:end] = states
        self._show(end)
        return self.keys, self.values

    def select(self, rows: Tensor, *, skip: int) -> None:
        """Keep some rows, without the first ``skip`` columns."""
        end = self.keys.shape[-2]
        self._blocks = [block[rows, :, skip:] for block in self._blocks]
        self._show(end - skip)

    def join(self, other: BlockLayer) -> None:
        """Append the rows of ``other``; the shorter side is padded on the left."""
        parts = ((self.keys, self.values), (other.keys, other.values))
        end = max(keys.shape[-2] for keys, _ in parts)
        mine = self.keys.shape
        num_rows = mine[0] + other.keys.shape[0]
        blocks = [
            self.keys.new_zeros(num_rows, mine[1], end + BLOCK, tensor.shape[-1])
            for tensor in parts[0]
        ]
        row = 0
        for part in parts:
            for block, tensor in zip(blocks, part, strict=True):
                start = end - tensor.shape[-2]
                block[row : row + tensor.shape[0], :, start:end] = tensor
            row += part[0].shape[0]
        self._blocks = blocks
        self._show(end)

    def _grow(self, like: Tensor, *, start: int, capacity: int) -> None:
        rows, heads, _, size = like.shape
        blocks = [like.new_zeros(rows, heads, capacity, size) for _ in range(2)]
        for new, old in zip(blocks, self._blocks, strict=False):
            new[:, :, :start] = old[:, :, :start]
        self._blocks = blocks
        self.dtype, self.device = like.dtype, like.device
        self.is_initialized = True

    def _show(self, end: int) -> None:
        self.keys, self.values = (block[:, :, :end] for block in self._blocks)


def new_cache(num_layers: int) -> Cache:
    """An empty cache for a model of ``num_layers`` layers."""
    return Cache(layers=[BlockLayer() for _ in range(num_layers)])


def select_rows(cache: Cache, rows: Tensor, *, skip: int) -> None:
    """Keep ``rows`` (int64), without the first ``skip`` columns, in every layer."""
    for layer in cache.layers:
        layer.select(rows, skip=skip)


def join_rows(cache: Cache, other: Cache) -> None:
    """Append the rows of ``other`` in every layer."""
    for mine, theirs in zip(cache.layers, other.layers, strict=True):
        mine.join(theirs)
