"""Megatron-Core: its own settings and how the worker uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from relax.arguments.flag import NON_NEGATIVE, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronSettings:
    """Settings handed to megatron-core, and the trainer's own.

    The three mappings hold JSON values: only what the user set, plus upstream's own
    defaults where they differ from megatron-core's (``lr``, both dropouts). A dtype is
    its name (``"bfloat16"``), an enum member is its name (``"flash"``).

    Attributes:
        transformer: Fields of ``TransformerConfig``.
        optimizer: Fields of ``OptimizerConfig``.
        ddp: Fields of ``DistributedDataParallelConfig``.
    """

    transformer: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=flag("TransformerConfig.", kind=ValueKind.PASSTHROUGH),
    )
    optimizer: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=flag("OptimizerConfig.", kind=ValueKind.PASSTHROUGH),
    )
    ddp: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=flag("DistributedDataParallelConfig.", kind=ValueKind.PASSTHROUGH),
    )
    seed: int = field(
        default=1234, metadata=flag("Seed of the trainer.", bounds=NON_NEGATIVE)
    )
    ref_mode: Literal["swap", "resident"] = field(
        default="resident",
        metadata=flag(
            "Reference weights: swapped in from the host, or a module of their own.",
            ours=True,
            derived="swap with GPUs, resident on CPU",
        ),
    )
    transformer_impl: Literal["local", "transformer_engine"] = field(
        default="local",
        metadata=flag(
            "Layers: megatron-core's own, or Transformer Engine's.",
            derived="transformer_engine with GPUs, local on CPU",
        ),
    )
    deterministic_mode: bool = field(
        default=False, metadata=flag("Only kernels that give the same bits each time.")
    )
    grad_norm_by_layer: bool = field(
        default=False,
        metadata=flag("Measure the gradient norm of each layer too.", ours=True),
    )

    @property
    def precision(self) -> Literal["float32", "bfloat16", "float16"]:
        """The type of the weights."""
        if self.transformer.get("bf16"):
            return "bfloat16"
        return "float16" if self.transformer.get("fp16") else "float32"
