"""Causal attention for the local layer spec, over torch's fused kernel.

Shapes: S sequence, B sample, H query heads of this rank, K key/value heads,
D head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from relax.backends.megatron.mcore import PackedSeqParams, TransformerConfig
from relax.errors import InternalError


class CausalAttention(nn.Module):
    """softmax(q kᵀ · scale) v over the tokens at or before each position.

    No mask is read: rows are padded on the right, so a real token never sees a padded
    one, and what padded positions compute is never looked at.

    Args:
        config: megatron's configuration.
        softmax_scale: Factor on the scores; None means 1 / sqrt(D).
        **_: What megatron passes to attentions that have more options.
    """

    def __init__(
        self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any
    ) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale
        self.dropout = config.attention_dropout

    def forward(  # noqa: PLR0913, PLR0917  megatron calls it so
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        attn_mask_type: object = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> Tensor:
        """Attends.

        Args:
            query: [S, B, H, D]; without B where samples are packed.
            key: [S, B, K, D], likewise; K divides H.
            value: [S, B, K, D], likewise.
            attention_mask: Must be None.
            attn_mask_type: Ignored; always causal.
            attention_bias: Must be None.
            packed_seq_params: Where the packed samples end; None for padded rows.

        Returns:
            [S, B, H · D], or [S, H · D].

        Raises:
            InternalError: A mask or bias was given.
        """
        if attention_mask is not None or attention_bias is not None:
            raise InternalError("the local attention takes no mask and no bias")
        if packed_seq_params is None:
            return self._attend(query, key, value)
        ends = packed_seq_params.cu_seqlens_q
        lengths = (ends[1:] - ends[:-1]).tolist()
        pieces = [
            self._attend(*(part.unsqueeze(1) for part in parts)).squeeze(1)
            for parts in zip(
                *(whole.split(lengths) for whole in (query, key, value)), strict=True
            )
        ]
        return torch.cat(pieces)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The same for rows, each [S, B, heads, D]."""
        context = scaled_dot_product_attention(
            query.permute(1, 2, 0, 3),
            key.permute(1, 2, 0, 3),
            value.permute(1, 2, 0, 3),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
            scale=self.softmax_scale,
            enable_gqa=query.size(2) != key.size(2),
        )
        return context.permute(2, 0, 1, 3).flatten(2)
