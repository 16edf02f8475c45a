"""Runs inside the server: digests of every tensor that the model holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relax.backends.fingerprint import tensor_digest

_QKV = re.compile(r"(.*self_attn\.)qkv_proj(\.weight|\.bias)$")
_GATE_UP = re.compile(r"(.*mlp\.(?:shared_expert\.)?)gate_up_proj(\.weight|\.bias)$")
_EXPERTS = re.compile(r"(.*mlp\.experts\.)(w13|w2)_weight$")


def inspect(
    model: torch.nn.Module, *, shapes: dict[str, list[int]], values: str | None
) -> dict[str, Any]:
    """Looks at all parameters and buffers.

    Args:
        model: As SGLang built it.
        shapes: Of the checkpoint's tensors, by name.
        values: Folder that takes the tensors themselves, one file each; None: none.

    Returns:
        ``tensors`` and ``buffers`` by name, the former under the checkpoint's names,
        and ``tied`` (name to name).
    """
    # One tensor may go by two names; each is looked at under its first.
    tensors: dict[str, dict[str, Any]] = {}
    seen: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = seen.setdefault(parameter.data_ptr(), name)
        if first != name and parameter.numel():
            tied[name] = first
            continue
        for piece_name, fused in hf_pieces(name, parameter.detach(), model):
            piece = unpadded(fused, shapes.get(piece_name))
            tensors[piece_name] = _described(piece)
            tensors[piece_name]["padding"] = list(fused.shape) != list(piece.shape)
            if values is not None:
                _keep(piece_name, piece, Path(values))
    buffers = {name: _described(buffer) for name, buffer in model.named_buffers()}
    return {"tensors": tensors, "buffers": buffers, "tied": tied}


def unpadded(tensor: Tensor, shape: list[int] | None) -> Tensor:
    """The part of a tensor that is the checkpoint's.

    SGLang makes vocabularies and, on a CPU, layers longer than the model's, so that its
    kernels' blocks fit.

    Args:
        tensor: As SGLang holds it.
        shape: The checkpoint's; None: not known.
    """
    if shape is None or len(shape) != tensor.dim():
        return tensor
    for dim, size in enumerate(shape):
        if size < tensor.shape[dim]:
            tensor = tensor.narrow(dim, 0, size)
    return tensor


def _described(tensor: Tensor) -> dict[str, Any]:
    finite = torch.isfinite(tensor).all().item() if tensor.is_floating_point() else True
    return {
        "digest": tensor_digest(tensor),
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "finite": bool(finite),
        "zero": not bool(tensor.any().item()),
    }


def _keep(name: str, tensor: Tensor, folder: Path) -> None:
    final = folder / f"{name}.pt"
    temporary = final.with_name(f".{final.name}.tmp")
    torch.save(tensor.detach().cpu().contiguous().clone(), temporary)
    temporary.replace(final)


@dataclass(frozen=True)
class Heads:
    """Rows of q, k and v in a fused projection."""

    q: int
    kv: int

    @classmethod
    def of(cls, config: Any, *, rows: int) -> Heads:
        """From the model's config; ``rows`` settles the size of a head."""
        heads = config.num_attention_heads
        kv_heads = config.num_key_value_heads
        size = rows // (heads + 2 * kv_heads)
        return cls(q=heads * size, kv=kv_heads * size)


def hf_pieces(
    name: str, tensor: Tensor, model: torch.nn.Module
) -> Iterator[tuple[str, Tensor]]:
    """Splits a tensor that SGLang fused into those of the Hugging Face checkpoint.

    Args:
        name: SGLang's name.
        tensor: Its value.
        model: For the sizes in its config.

    Yields:
        Hugging Face name and a view. A name that is not fused is handed on as it is.
    """
    config: Any = model.config
    if found := _QKV.match(name):
        heads = Heads.of(config, rows=tensor.shape[0])
        parts = tensor.split([heads.q, heads.kv, heads.kv])
        for part, piece in zip("qkv", parts, strict=True):
            yield f"{found[1]}{part}_proj{found[2]}", piece
    elif found := _GATE_UP.match(name):
        for part, piece in zip(("gate", "up"), tensor.chunk(2), strict=True):
            yield f"{found[1]}{part}_proj{found[2]}", piece
    elif found := _EXPERTS.match(name):
        yield from _expert_pieces(found[1], found[2], tensor)
    else:
        yield name, tensor


def _expert_pieces(
    prefix: str, which: str, tensor: Tensor
) -> Iterator[tuple[str, Tensor]]:
    for number, expert in enumerate(tensor):
        if which == "w2":
            yield f"{prefix}{number}.down_proj.weight", expert
            continue
        for part, piece in zip(("gate", "up"), expert.chunk(2), strict=True):
            yield f"{prefix}{number}.{part}_proj.weight", piece
