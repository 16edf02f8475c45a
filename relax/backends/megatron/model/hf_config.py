"""The shape of a model, read from a Hugging Face ``config.json``.

One function a family; each refuses by name what the family's weight table does not
carry, so that a variant is never trained as its plain sibling.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relax.errors import ArgumentError

LLAMA3_ROPE = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The constants that megatron-core's rotary embedding has for Llama 3; not settable."""


@dataclass(frozen=True, kw_only=True)
class ExpertsShape:
    """The mixture of experts that stands where a dense model has one MLP a layer.

    Attributes:
        count: Experts of a layer.
        per_token: Experts that each token goes through.
        ffn_hidden_size: Width of one expert's gated MLP.
        renormalised: The chosen experts' weights add up to 1.
    """

    count: int
    per_token: int
    ffn_hidden_size: int
    renormalised: bool


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What a decoder-only transformer is made of.

    Attributes:
        family: HF ``model_type``; names the weight table.
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream.
        ffn_hidden_size: Width of the gated MLP.
        num_attention_heads: Query heads.
        num_query_groups: Key/value heads.
        kv_channels: Width of one head.
        vocab_size: Rows of the HF embedding, before any padding.
        max_position_embeddings: Longest sequence the model was made for, tokens.
        rotary_base: Base of the rotary embedding.
        rope_scaling_factor: Llama-3 scaling of the rotary embedding, None without.
        norm_epsilon: Epsilon of every RMSNorm.
        tied_embeddings: The output layer is the embedding.
        qkv_bias: Query, key and value projections have a bias.
        qk_norm: Queries and keys are normalised per head.
        experts: Experts in every layer; None for a dense model.
    """

    family: str
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    vocab_size: int
    max_position_embeddings: int
    rotary_base: float
    rope_scaling_factor: float | None
    norm_epsilon: float
    tied_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    experts: ExpertsShape | None = None

    @property
    def heads_per_group(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_attention_heads // self.num_query_groups


def read_hf_config(folder: str | Path) -> dict[str, Any]:
    """Reads ``config.json`` of an HF checkpoint folder.

    Raises:
        ArgumentError: There is none, or it is not a JSON object.
    """
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArgumentError(
            f"{str(folder)!r} is not a Hugging Face checkpoint: no config.json in it",
            where="--hf-checkpoint",
            hint="give a folder with config.json and *.safetensors",
        ) from error
    except ValueError as error:
        raise ArgumentError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ArgumentError(f"{path} does not hold a JSON object")
    return config


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """Reads the shape out of an HF config.

    Args:
        config: The parsed ``config.json``.

    Returns:
        The shape.

    Raises:
        ArgumentError: The family or a variant of it is not supported, or a key is
            missing.
    """
    family = config.get("model_type")
    reader = _FAMILIES.get(str(family))
    if reader is None:
        raise ArgumentError(
            f"model_type {family!r} is not supported for training",
            where="config.json",
            hint=f"supported: {', '.join(sorted(_FAMILIES))}",
        )
    try:
        return reader(config)
    except KeyError as error:
        raise ArgumentError(
            f"the {family} config has no {error.args[0]!r}", where="config.json"
        ) from error


def _dense(
    config: Mapping[str, Any], *, qkv_bias: bool, qk_norm: bool, tied: bool
) -> ModelShape:
    """The shape of a dense decoder; ``tied`` is the family's default for tying."""
    _refuse_variants(config)
    heads = config["num_attention_heads"]
    base, factor = _rope(config)
    return ModelShape(
        family=config["model_type"],
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        ffn_hidden_size=config["intermediate_size"],
        num_attention_heads=heads,
        num_query_groups=config.get("num_key_value_heads") or heads,
        kv_channels=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["max_position_embeddings"],
        rotary_base=base,
        rope_scaling_factor=factor,
        norm_epsilon=config["rms_norm_eps"],
        tied_embeddings=config.get("tie_word_embeddings", tied),
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
    )


def _llama(config: Mapping[str, Any]) -> ModelShape:
    _refuse_if(config, "attention_bias", config.get("attention_bias"))
    return _dense(config, qkv_bias=False, qk_norm=False, tied=False)


def _qwen2(config: Mapping[str, Any]) -> ModelShape:
    return _dense(config, qkv_bias=True, qk_norm=False, tied=False)


def _qwen3(config: Mapping[str, Any]) -> ModelShape:
    _refuse_if(config, "attention_bias", config.get("attention_bias"))
    return _dense(
        # transformers' Qwen3 has a head width of its own, 128 unless the file says.
        {"head_dim": 128, **config},
        qkv_bias=False,
        qk_norm=True,
        tied=False,
    )


def _qwen3_moe(config: Mapping[str, Any]) -> ModelShape:
    layers = config.get("mlp_only_layers")
    _refuse_if(config, "mlp_only_layers", layers)
    step = config.get("decoder_sparse_step", 1)
    _refuse_if(config, "decoder_sparse_step", step != 1)
    # transformers 5 has named them anew.
    count = config.get("num_local_experts") or config["num_experts"]
    return replace(
        _qwen3(config),
        experts=ExpertsShape(
            count=count,
            per_token=config["num_experts_per_tok"],
            ffn_hidden_size=config["moe_intermediate_size"],
            renormalised=bool(config.get("norm_topk_prob", False)),
        ),
    )


_FAMILIES: dict[str, Callable[[Mapping[str, Any]], ModelShape]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}


def _refuse_variants(config: Mapping[str, Any]) -> None:
    _refuse_if(config, "mlp_bias", config.get("mlp_bias"))
    _refuse_if(config, "use_sliding_window", config.get("use_sliding_window"))
    activation = config.get("hidden_act", "silu")
    _refuse_if(config, "hidden_act", activation not in ("silu", "swish"))
    partial = config.get("partial_rotary_factor", 1.0)
    _refuse_if(config, "partial_rotary_factor", partial != 1.0)


def _refuse_if(config: Mapping[str, Any], key: str, refused: Any) -> None:
    if refused:
        raise ArgumentError(
            f"{config['model_type']} with {key} = {config[key]!r} is not supported",
            where="config.json",
        )


def _rope(config: Mapping[str, Any]) -> tuple[float, float | None]:
    """Base and Llama-3 factor; newer files keep both in ``rope_parameters``."""
    newer = config.get("rope_parameters")
    rope = newer or config.get("rope_scaling") or {}
    base = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return float(base), None
    if kind != "llama3":
        raise ArgumentError(
            f"rope_type {kind!r} is not supported",
            where="config.json",
            hint="supported: default, llama3",
        )
    for key, supported in LLAMA3_ROPE.items():
        if rope[key] != supported:
            raise ArgumentError(
                f"rope {key} = {rope[key]} is not supported: megatron-core has "
                f"{supported}",
                where="config.json",
            )
    return float(base), float(rope["factor"])
