"""Which HF tensors make which megatron parameter, as data.

A rule names one megatron parameter, the HF tensors that are fused into it, how, and
along which dimension tensor parallelism cuts each of them. HF → megatron and megatron
→ HF both read these rules (`convert.weights`); there is no second list.

To add a family: write its rules here and its shape in `model.hf_config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from relax.backends.megatron.model.hf_config import ModelShape


class Fuse(Enum):
    """How the HF tensors of a rule become one megatron parameter."""

    COPY = "copy"
    """One tensor, as it is."""
    VOCAB = "vocab"
    """One tensor with a row a token, padded with rows of zeros."""
    QKV = "qkv"
    """For each key/value head: its query heads, the key head, the value head."""
    GATE_UP = "gate_up"
    """The gate's rows, then the up projection's."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One megatron parameter and the HF tensors it is made of.

    Attributes:
        megatron: Parameter name; ``{layer}`` and ``{expert}`` stand for the numbers of
            layer and expert in the whole model.
        hf: HF tensor names, in the order in which they are fused.
        fuse: How.
        split: Dimension that tensor parallelism cuts, in each HF tensor; None: every
            rank holds the whole. An expert is cut by its own tensor axis.
        expert: Number of the expert that it belongs to; None for what is no expert's.
    """

    megatron: str
    hf: tuple[str, ...]
    fuse: Fuse = Fuse.COPY
    split: int | None = None
    expert: int | None = None

    @property
    def of_each_expert(self) -> bool:
        """Whether the rule stands for one parameter an expert."""
        return "{expert}" in self.megatron

    def at(self, layer: int, expert: int | None = None) -> Rule:
        """The rule of one layer, and of one of its experts."""
        numbers = {"layer": layer, "expert": expert}
        return replace(
            self,
            megatron=self.megatron.format(**numbers),
            hf=tuple(name.format(**numbers) for name in self.hf),
            expert=expert,
        )


_HF_LAYER = "model.layers.{layer}."
_LAYER = "decoder.layers.{layer}."
_ATTENTION = _LAYER + "self_attention."


def _projections(kind: str) -> tuple[str, ...]:
    return tuple(f"{_HF_LAYER}self_attn.{name}_proj.{kind}" for name in "qkv")


_EMBEDDING = Rule(
    megatron="embedding.word_embeddings.weight",
    hf=("model.embed_tokens.weight",),
    fuse=Fuse.VOCAB,
    split=0,
)
_OUTPUT = Rule(
    megatron="output_layer.weight", hf=("lm_head.weight",), fuse=Fuse.VOCAB, split=0
)
_FINAL_NORM = Rule(megatron="decoder.final_layernorm.weight", hf=("model.norm.weight",))

_AROUND_MLP = (
    Rule(
        megatron=_LAYER + "input_layernorm.weight",
        hf=(_HF_LAYER + "input_layernorm.weight",),
    ),
    Rule(
        megatron=_ATTENTION + "linear_qkv.weight",
        hf=_projections("weight"),
        fuse=Fuse.QKV,
        split=0,
    ),
    Rule(
        megatron=_ATTENTION + "linear_proj.weight",
        hf=(_HF_LAYER + "self_attn.o_proj.weight",),
        split=1,
    ),
    Rule(
        megatron=_LAYER + "pre_mlp_layernorm.weight",
        hf=(_HF_LAYER + "post_attention_layernorm.weight",),
    ),
)
_MLP = (
    Rule(
        megatron=_LAYER + "mlp.linear_fc1.weight",
        hf=(_HF_LAYER + "mlp.gate_proj.weight", _HF_LAYER + "mlp.up_proj.weight"),
        fuse=Fuse.GATE_UP,
        split=0,
    ),
    Rule(
        megatron=_LAYER + "mlp.linear_fc2.weight",
        hf=(_HF_LAYER + "mlp.down_proj.weight",),
        split=1,
    ),
)
_EXPERT = _LAYER + "mlp.experts.local_experts.{expert}."
_HF_EXPERT = _HF_LAYER + "mlp.experts.{expert}."
_EXPERTS = (
    Rule(
        megatron=_LAYER + "mlp.router.weight",
        hf=(_HF_LAYER + "mlp.gate.weight",),
    ),
    Rule(
        megatron=_EXPERT + "linear_fc1.weight",
        hf=(_HF_EXPERT + "gate_proj.weight", _HF_EXPERT + "up_proj.weight"),
        fuse=Fuse.GATE_UP,
        split=0,
    ),
    Rule(
        megatron=_EXPERT + "linear_fc2.weight",
        hf=(_HF_EXPERT + "down_proj.weight",),
        split=1,
    ),
)
_DENSE_LAYER = _AROUND_MLP + _MLP
_QKV_BIAS = (
    Rule(
        megatron=_ATTENTION + "linear_qkv.bias",
        hf=_projections("bias"),
        fuse=Fuse.QKV,
        split=0,
    ),
)
_QK_NORM = tuple(
    Rule(
        megatron=f"{_ATTENTION}{name}_layernorm.weight",
        hf=(f"{_HF_LAYER}self_attn.{name}_norm.weight",),
    )
    for name in "qk"
)

_LAYER_RULES: dict[str, tuple[Rule, ...]] = {
    "llama": _DENSE_LAYER,
    "qwen2": _DENSE_LAYER + _QKV_BIAS,
    "qwen3": _DENSE_LAYER + _QK_NORM,
    "qwen3_moe": _AROUND_MLP + _EXPERTS + _QK_NORM,
}

TRANSFORMER_ENGINE_NAMES = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}
"""Transformer Engine fuses a norm with the matrix after it, and names it so."""


def rules_of(shape: ModelShape) -> list[Rule]:
    """All rules of a model, one a parameter, in the order of the forward pass.

    Args:
        shape: The model's shape; a tied output layer has no rule of its own.

    Returns:
        The rules with their layer numbers filled in.
    """
    rules = [_EMBEDDING]
    rules += [rule for n in range(shape.num_layers) for rule in _layer_rules(shape, n)]
    rules.append(_FINAL_NORM)
    if not shape.tied_embeddings:
        rules.append(_OUTPUT)
    return rules


def _layer_rules(shape: ModelShape, layer: int) -> Iterator[Rule]:
    for rule in _LAYER_RULES[shape.family]:
        if rule.of_each_expert and shape.experts is not None:
            yield from (rule.at(layer, expert) for expert in range(shape.experts.count))
        else:
            yield rule.at(layer)
