"""HF weights into a megatron model and out of it, on every parallel layout.

Each rank loads its own part from the whole HF tensors. The way back gathers the tensor
axis and broadcasts along the pipeline, so that every rank sees every HF tensor whole;
all ranks of one model must walk through it together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relax.backends.megatron.convert.fuse import fuse, pad_rows, split
from relax.backends.megatron.convert.table import (
    TRANSFORMER_ENGINE_NAMES,
    Fuse,
    Rule,
    rules_of,
)
from relax.backends.megatron.model.hf_config import ModelShape
from relax.backends.megatron.parallel import ParallelLayout
from relax.errors import ArgumentError, InternalError

_NOT_WEIGHTS = ("rotary_emb.inv_freq",)
"""Endings of tensors that old checkpoints carry and every reader recomputes."""


_EXPERT_NAMES = (
    re.compile(
        r"mlp\.experts\.local_experts\.(?P<expert>\d+)\.(?P<matrix>\w+)\.weight"
    ),
    re.compile(r"mlp\.experts\.(?P<matrix>\w+)\.weight(?P<expert>\d+)"),
)
"""An expert's matrix in megatron's own layers, and in Transformer Engine's grouped."""


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """This rank's part of a model, with parameters found by their global name.

    Attributes:
        shape: The whole model's shape.
        layout: This rank's place.
        padded_vocab_size: Rows of the embedding over all tensor ranks.
        parameters: Global megatron name → this rank's parameter.
    """

    shape: ModelShape
    layout: ParallelLayout
    padded_vocab_size: int
    parameters: Mapping[str, nn.Parameter]


def model_part(
    model: nn.Module,
    *,
    shape: ModelShape,
    layout: ParallelLayout,
    padded_vocab_size: int,
) -> ModelPart:
    """Names a model's parameters as the table does, and marks those that are cut.

    megatron marks them while it draws random weights, which is left out here; without
    the mark a gradient norm counts the first tensor rank's part alone.

    Args:
        model: A GPTModel, wrapped or not.
        shape: The whole model's shape.
        layout: This rank's place.
        padded_vocab_size: Rows of the embedding over all tensor ranks.

    Returns:
        The part.
    """
    core = unwrap(model)
    numbers = [layer.layer_number - 1 for layer in core.decoder.layers]
    first_expert = layout.expert_rank * _experts_per_rank(shape, layout)
    parameters = {
        _global_name(name, numbers, first_expert): parameter
        for name, parameter in core.named_parameters()
    }
    part = ModelPart(
        shape=shape,
        layout=layout,
        padded_vocab_size=padded_vocab_size,
        parameters=parameters,
    )
    for rule in rules_of(shape):
        if rule.split is not None:
            for name in _holders(rule, part):
                _mark_as_cut(parameters[name], rule.split)
    return part


def unwrap(model: nn.Module) -> nn.Module:
    """The GPTModel inside DDP and Float16Module."""
    while not hasattr(model, "decoder"):
        model = model.module
    return model


def _global_name(name: str, layer_numbers: list[int], first_expert: int) -> str:
    """A rank's own parameter name with layer and expert as the whole model counts."""
    prefix = "decoder.layers."
    if not name.startswith(prefix):
        return name
    local, rest = name.removeprefix(prefix).split(".", 1)
    for ours, theirs in TRANSFORMER_ENGINE_NAMES.items():
        if rest == theirs:
            rest = ours
    for pattern in _EXPERT_NAMES:
        if found := pattern.fullmatch(rest):
            expert = first_expert + int(found["expert"])
            matrix = found["matrix"]
            rest = f"mlp.experts.local_experts.{expert}.{matrix}.weight"
    return f"{prefix}{layer_numbers[int(local)]}.{rest}"


def _experts_per_rank(shape: ModelShape, layout: ParallelLayout) -> int:
    return shape.experts.count // layout.expert_size if shape.experts else 0


def expected_hf_names(shape: ModelShape) -> set[str]:
    """Names of all HF tensors of a model."""
    return {name for rule in rules_of(shape) for name in rule.hf}


@torch.no_grad()
def hf_to_megatron(tensors: Mapping[str, Tensor], part: ModelPart) -> None:
    """Sets every parameter of this rank from HF tensors.

    Args:
        tensors: HF name → whole tensor, any float dtype; read one at a time.
        part: This rank's part of the model.

    Raises:
        ArgumentError: A tensor is missing, unknown, or has another shape than the
            model's config says.
        InternalError: A parameter of the model has no rule.
    """
    _check_names(tensors, part.shape)
    done: set[str] = set()
    for rule in rules_of(part.shape):
        for name in _holders(rule, part):
            parts = [_own_slice(tensors[hf], rule, part) for hf in rule.hf]
            _assign(part.parameters[name], fuse(parts, rule.fuse, part.shape), rule)
            done.add(name)
    forgotten = set(part.parameters) - done
    if forgotten:
        raise InternalError(f"parameters without a rule: {sorted(forgotten)[:5]}")


def megatron_to_hf(part: ModelPart) -> Iterator[tuple[str, Tensor]]:
    """Walks through the model as whole HF tensors, in the table's order.

    A collective over the tensor, expert and pipeline axes: every rank of a model, and
    of an expert group, must take every item.

    Args:
        part: This rank's part of the model.

    Yields:
        HF name and tensor, in the parameters' dtype, on the layout's device; may share
        memory with the parameter.
    """
    for rule in rules_of(part.shape):
        parameter = part.parameters.get(_own_twin(rule, part).megatron)
        if parameter is None:
            whole = [None] * len(rule.hf)
        else:
            pieces = split(parameter.detach(), rule.fuse, part.shape)
            whole = [_gathered(piece, rule, part) for piece in pieces]
            whole = [_from_expert_rank(piece, rule, part) for piece in whole]
        for name, tensor in zip(rule.hf, whole, strict=True):
            yield name, _from_owner(tensor, part)


def _own_twin(rule: Rule, part: ModelPart) -> Rule:
    """The rule of the expert that this rank has at the same place as the rule's owner.

    All ranks of an expert group have as many experts, so each has such a twin, and can
    take part in gathering and sending without asking who owns what.
    """
    if rule.expert is None:
        return rule
    per_rank = _experts_per_rank(part.shape, part.layout)
    twin = part.layout.expert_rank * per_rank + rule.expert % per_rank
    theirs, ours = f".local_experts.{rule.expert}.", f".local_experts.{twin}."
    return replace(rule, megatron=rule.megatron.replace(theirs, ours))


def _from_expert_rank(tensor: Tensor, rule: Rule, part: ModelPart) -> Tensor:
    """An expert's tensor on every rank of its group, sent by the one that has it."""
    layout = part.layout
    if rule.expert is None or layout.expert_size == 1:
        return tensor
    owner = rule.expert // _experts_per_rank(part.shape, layout)
    if owner != layout.expert_rank:
        tensor = torch.empty_like(tensor)
    source = dist.get_global_rank(layout.expert_group, owner)
    dist.broadcast(tensor, src=source, group=layout.expert_group)
    return tensor


def _tensor_axis(rule: Rule, part: ModelPart) -> tuple[int, int, dist.ProcessGroup]:
    """Size, own rank and group of the axis that cuts the rule's tensors."""
    layout = part.layout
    if rule.expert is None:
        return layout.tensor_size, layout.tensor_rank, layout.tensor_group
    return (
        layout.expert_tensor_size,
        layout.expert_tensor_rank,
        layout.expert_tensor_group,
    )


def _holders(rule: Rule, part: ModelPart) -> list[str]:
    """This rank's parameters that the rule sets.

    A tied embedding is a second parameter on the last of several stages.
    """
    names = [rule.megatron]
    if part.shape.tied_embeddings and rule.megatron.startswith("embedding."):
        names.append("output_layer.weight")
    return [name for name in names if name in part.parameters]


def _mark_as_cut(parameter: nn.Parameter, dim: int) -> None:
    parameter.tensor_model_parallel = True
    parameter.partition_dim = dim
    parameter.partition_stride = 1


def _own_slice(tensor: Tensor, rule: Rule, part: ModelPart) -> Tensor:
    if rule.fuse is Fuse.VOCAB:
        if tensor.shape[0] != part.shape.vocab_size:
            raise ArgumentError(
                f"{rule.hf[0]} has {tensor.shape[0]} rows, config.json says "
                f"vocab_size {part.shape.vocab_size}"
            )
        tensor = pad_rows(tensor, part.padded_vocab_size)
    size, rank, _ = _tensor_axis(rule, part)
    if rule.split is None or size == 1:
        return tensor
    if tensor.shape[rule.split] % size:
        raise ArgumentError(
            f"{rule.hf[0]} of shape {list(tensor.shape)} cannot be cut by {size}",
            hint="choose another --tensor-model-parallel-size",
        )
    return tensor.chunk(size, dim=rule.split)[rank]


def _assign(parameter: nn.Parameter, value: Tensor, rule: Rule) -> None:
    if parameter.shape != value.shape:
        raise ArgumentError(
            f"{' + '.join(rule.hf)} give shape {list(value.shape)}, the model of "
            f"config.json has {list(parameter.shape)}",
            hint="config.json and the weights are not of one model",
        )
    parameter.copy_(value)


def _gathered(piece: Tensor, rule: Rule, part: ModelPart) -> Tensor:
    """The piece of all tensor ranks together, without padded rows."""
    size, _, group = _tensor_axis(rule, part)
    if rule.split is not None and size > 1:
        pieces = [torch.empty_like(piece) for _ in range(size)]
        dist.all_gather(pieces, piece.contiguous(), group=group)
        piece = torch.cat(pieces, dim=rule.split)
    if rule.fuse is Fuse.VOCAB:
        piece = piece[: part.shape.vocab_size]
    return piece.contiguous()


def _from_owner(tensor: Tensor | None, part: ModelPart) -> Tensor:
    """The tensor on every stage, sent by the first stage that has it."""
    layout = part.layout
    if layout.pipeline_size == 1:
        if tensor is None:
            raise InternalError("a rule's parameter is nowhere in the model")
        return tensor
    descriptions: list[Any] = [None] * layout.pipeline_size
    mine = None if tensor is None else (list(tensor.shape), tensor.dtype)
    dist.all_gather_object(descriptions, mine, group=layout.pipeline_group)
    owners = [stage for stage, found in enumerate(descriptions) if found is not None]
    if not owners:
        raise InternalError("a rule's parameter is on no stage")
    stage = owners[0]
    if stage != layout.pipeline_rank:
        dims, dtype = descriptions[stage]
        tensor = torch.empty(dims, dtype=dtype, device=layout.device)
    source = dist.get_global_rank(layout.pipeline_group, stage)
    dist.broadcast(tensor, src=source, group=layout.pipeline_group)
    return tensor


def _check_names(tensors: Mapping[str, Tensor], shape: ModelShape) -> None:
    expected = expected_hf_names(shape)
    given = {name for name in tensors if not name.endswith(_NOT_WEIGHTS)}
    if shape.tied_embeddings:
        # Some writers store the tied output layer a second time.
        given.discard("lm_head.weight")
    for what, names in (
        ("has no", expected - given),
        ("has an unknown", given - expected),
    ):
        if names:
            raise ArgumentError(
                f"the checkpoint {what} {sorted(names)[0]!r} ({len(names)} such "
                f"tensors for a {shape.family} model)",
                hint="config.json and the weights are not of one model",
            )
