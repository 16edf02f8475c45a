"""The gradient norm by part of the model: where a broken gradient comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relax.backends.megatron.convert.weights import ModelPart
from relax.backends.megatron.mcore import DistributedDataParallel

PARTS = ("embedding", "attention", "mlp", "router", "experts", "norm", "output")
"""Parts of a model; the squares of their norms add up to the square of the whole."""

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """What the reduced gradients of a step are like, before clipping.

    Attributes:
        norm_by_part: Part → norm; a part that the model has not got is left out. NaN
            and infinity come through.
        norm_by_layer: The same by transformer layer; embedding, final norm and output
            belong to none.
        nonfinite: Elements that are NaN or infinite.
    """

    norm_by_part: dict[str, float]
    norm_by_layer: list[float]
    nonfinite: int


def measure_gradients(part: ModelPart, ddp: DistributedDataParallel) -> Gradients:
    """Measures the reduced gradients of the whole model.

    A collective over all ranks. Each element counts once, on whichever ranks hold
    copies of it, and where a distributed optimizer has reduced only a piece of it on
    each rank.

    Args:
        part: This rank's parameters.
        ddp: The wrapper that holds their gradients.
    """
    layout = part.layout
    layers = part.shape.num_layers
    # Rows: parts, then layers. Columns: sum of squares, parameters, non-finite ones.
    sums = torch.zeros(len(PARTS) + layers, 3, dtype=torch.float64)
    owned = list(_owned(part, ddp))
    for (name, gradient), square in zip(owned, _squares(owned), strict=True):
        bad = 0 if math.isfinite(square) else int((~torch.isfinite(gradient)).sum())
        added = torch.tensor([square, 1.0, bad], dtype=torch.float64)
        sums[PARTS.index(_part_of(name))] += added
        if found := _LAYER.match(name):
            sums[len(PARTS) + int(found[1])] += added
    everywhere = sums.to(layout.device)
    dist.all_reduce(everywhere)
    of_parts, of_layers = everywhere.split([len(PARTS), layers])
    return Gradients(
        norm_by_part={
            name: math.sqrt(square)
            for name, (square, count, _) in zip(PARTS, of_parts.tolist(), strict=True)
            if count
        },
        norm_by_layer=of_layers[:, 0].sqrt().tolist(),
        nonfinite=round(float(of_parts[:, 2].sum())),
    )


def _squares(gradients: Sequence[tuple[str, Tensor]]) -> list[float]:
    """The squared norm of each, in one wait for the device."""
    norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for _, g in gradients]
    return torch.stack(norms).square().tolist() if norms else []


def _owned(
    part: ModelPart, ddp: DistributedDataParallel
) -> Iterator[tuple[str, Tensor]]:
    """Names, and the pieces of their gradients that this rank alone counts."""
    names = {id(parameter): name for name, parameter in part.parameters.items()}
    for buffer in (*ddp.buffers, *ddp.expert_parallel_buffers):
        replica = dist.get_rank(buffer.data_parallel_group)
        distributed = buffer.ddp_config.use_distributed_optimizer
        for parameter, (start, end, bucket_id) in buffer.param_index_map.items():
            name = names[id(parameter)]
            if _is_copy(name, parameter, part):
                continue
            if distributed:
                bucket = buffer.buckets[bucket_id]
                size = bucket.grad_data.numel() // buffer.data_parallel_world_size
                first = bucket.offset + replica * size
                start, end = max(start, first), min(end, first + size)
            elif replica:
                continue
            if start < end:
                yield name, buffer.grad_data[start:end]


def _part_of(name: str) -> str:
    if name.startswith("embedding."):
        return "embedding"
    if name.startswith("output_layer."):
        return "output"
    if "layernorm." in name:
        return "norm"
    if ".self_attention." in name:
        return "attention"
    if ".router." in name:
        return "router"
    return "experts" if ".experts." in name else "mlp"


def _is_copy(name: str, parameter: nn.Parameter, part: ModelPart) -> bool:
    """Whether another tensor rank or stage counts this parameter."""
    layout = part.layout
    if part.shape.tied_embeddings and name.startswith("output_layer."):
        return True  # the first stage counts it as the embedding
    if hasattr(parameter, "tensor_model_parallel"):
        return False
    rank = layout.expert_tensor_rank if ".experts." in name else layout.tensor_rank
    return rank > 0
