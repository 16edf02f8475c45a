"""RMSNorm for the local layer spec."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relax.backends.megatron.mcore import TransformerConfig


class RmsNorm(nn.Module):
    """Root-mean-square normalisation: x / sqrt(mean(x²) + eps) · weight.

    The statistics are float32 whatever the input is. megatron's own local norm refuses
    sequence parallelism, which this one supports by marking its weight: each rank sees
    a part of the sequence, so the gradient must be summed over the tensor axis.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    Args:
        config: megatron's configuration.
        hidden_size: Size of the last dimension.
        eps: Added under the root.
        **_: What megatron passes to norms that have more options.
    """

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalises the last dimension; same shape and dtype as the input."""
        wide = hidden.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(hidden.dtype)
