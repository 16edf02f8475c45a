"""The gradient norm by part of the model: where a broken gradient comes from."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from relax.backends.megatron.convert.weights import ModelPart

PARTS = ("embedding", "attention", "mlp", "norm", "output")
"""Parts of a model; the squares of their norms add up to the square of the whole."""


def grad_norm_by_part(part: ModelPart) -> dict[str, float]:
    """Norm of the reduced gradients of each part, before clipping.

    A collective over the tensor and pipeline axes. Each element counts once, on
    whichever ranks hold copies of it. Needs whole gradients on every replica: not for
    a distributed optimizer.

    Args:
        part: This rank's parameters, with gradients in ``main_grad``.

    Returns:
        Part → norm; a part that the model has not got is left out; NaN and infinity
        come through.
    """
    layout = part.layout
    squares = torch.zeros(len(PARTS), dtype=torch.float64, device=layout.device)
    present = torch.zeros_like(squares)
    for name, parameter in part.parameters.items():
        if _is_copy(name, parameter, part):
            continue
        place = PARTS.index(_part_of(name))
        norm = torch.linalg.vector_norm(parameter.main_grad, dtype=torch.float32)
        squares[place] += norm.to(torch.float64).square()
        present[place] += 1
    both = torch.stack([squares, present])
    dist.all_reduce(both, group=layout.model_group)
    totals, counts = both.tolist()
    return {
        name: math.sqrt(total)
        for name, total, count in zip(PARTS, totals, counts, strict=True)
        if count
    }


def _part_of(name: str) -> str:
    if name.startswith("embedding."):
        return "embedding"
    if name.startswith("output_layer."):
        return "output"
    if "layernorm." in name:
        return "norm"
    return "attention" if ".self_attention." in name else "mlp"


def _is_copy(name: str, parameter: torch.nn.Parameter, part: ModelPart) -> bool:
    """Whether another rank counts this parameter."""
    layout = part.layout
    if part.shape.tied_embeddings and name.startswith("output_layer."):
        return True  # the first stage counts it as the embedding
    is_cut = hasattr(parameter, "tensor_model_parallel")
    return layout.tensor_rank > 0 and not is_cut
