"""From a `ModelShape` and the user's settings to megatron-core's GPTModel.

Everything that knows how megatron-core builds a model is in this file; a newer core
that names another class changes it and nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

import torch
from torch.nn.functional import silu

from relax.arguments.groups.layout import LayoutSettings
from relax.arguments.groups.megatron import MegatronSettings
from relax.backends.megatron.cpu import cpu_device, has_gpu, refuse_on_cpu
from relax.backends.megatron.mcore import (
    Float16Module,
    GPTModel,
    ModuleSpec,
    RotaryEmbedding,
    TransformerBlockSubmodules,
    TransformerConfig,
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
    quiet_megatron,
)
from relax.backends.megatron.model.attention import CausalAttention
from relax.backends.megatron.model.hf_config import ModelShape
from relax.backends.megatron.model.linear import use_row_linear
from relax.backends.megatron.model.norm import RmsNorm
from relax.backends.megatron.parallel import ParallelLayout
from relax.errors import ArgumentError

VOCAB_MULTIPLE = 128
"""The embedding of each tensor rank is padded to a multiple of this many rows, which
GPU kernels like; upstream's ``--make-vocab-size-divisible-by``."""

ALLGATHER = "allgather"
"""The dispatcher of tokens to experts that runs without a GPU."""

_SHAPE_FIELDS = {
    "num_layers": "num_layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_query_groups": "num_query_groups",
    "kv_channels": "kv_channels",
    "add_qkv_bias": "qkv_bias",
    "qk_layernorm": "qk_norm",
}
"""TransformerConfig field → ModelShape field: what the weights themselves decide."""

_EXPERT_FIELDS = {
    "num_moe_experts": "count",
    "moe_router_topk": "per_token",
    "moe_ffn_hidden_size": "ffn_hidden_size",
}
"""The same for ExpertsShape."""


def padded_vocab_size(shape: ModelShape, layout: ParallelLayout) -> int:
    """Rows of the embedding over all tensor ranks, padding included."""
    multiple = VOCAB_MULTIPLE * layout.tensor_size
    return -(-shape.vocab_size // multiple) * multiple


def transformer_config(
    shape: ModelShape, settings: MegatronSettings, sizes: LayoutSettings
) -> TransformerConfig:
    """Configures megatron: the shape, our defaults, then the user's fields.

    Args:
        shape: From the HF config.
        settings: ``transformer`` holds the fields that the user set; they win.
        sizes: Parallel sizes.

    Returns:
        The configuration.

    Raises:
        ArgumentError: A field contradicts the weights' shape, is unknown, or megatron
            refuses the combination.
    """
    _refuse_contradictions(shape, settings.transformer)
    refuse_on_cpu(settings.transformer, context_size=sizes.context_parallel_size)
    values = _shape_values(shape) | _our_values(shape, settings, sizes)
    values |= decoded_fields(settings.transformer, TransformerConfig)
    _refuse_sizes(shape, sizes)
    values.setdefault("variable_seq_lengths", _lengths_vary(values))
    _set_dtypes(values, chosen=settings.transformer)
    try:
        return TransformerConfig(**values)
    except (AssertionError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"megatron-core refuses this configuration: {error}",
            hint="look at the TransformerConfig flags of this run",
        ) from error


def _refuse_sizes(shape: ModelShape, sizes: LayoutSettings) -> None:
    """Refuses axes that do not divide what they cut."""
    if shape.num_query_groups % sizes.tensor_model_parallel_size:
        raise ArgumentError(
            f"--tensor-model-parallel-size {sizes.tensor_model_parallel_size} does not "
            f"divide the model's {shape.num_query_groups} key/value heads"
        )
    if shape.num_layers % sizes.pipeline_model_parallel_size:
        raise ArgumentError(
            f"--pipeline-model-parallel-size {sizes.pipeline_model_parallel_size} does "
            f"not divide the model's {shape.num_layers} layers"
        )
    if shape.experts and shape.experts.count % sizes.expert_model_parallel_size:
        raise ArgumentError(
            f"--expert-model-parallel-size {sizes.expert_model_parallel_size} does not "
            f"divide the model's {shape.experts.count} experts"
        )
    if sizes.expert_model_parallel_size > 1 and shape.experts is None:
        raise ArgumentError(
            f"--expert-model-parallel-size {sizes.expert_model_parallel_size}: a "
            f"{shape.family} model has no experts",
            hint="set it to 1",
        )


def build_model(
    shape: ModelShape,
    config: TransformerConfig,
    *,
    settings: MegatronSettings,
    layout: ParallelLayout,
) -> torch.nn.Module:
    """Builds this rank's part of the model, weights not yet set.

    Args:
        shape: From the HF config.
        config: From `transformer_config`.
        settings: Which layer implementation to use.
        layout: This rank's place.

    Returns:
        A GPTModel on the layout's device, in Float16Module when the parameters are
        half precision. Its parameters hold arbitrary values.
    """
    with cpu_device(), quiet_megatron():
        model = GPTModel(
            config=config,
            transformer_layer_spec=_layer_spec(shape, config, settings),
            vocab_size=padded_vocab_size(shape, layout),
            max_sequence_length=shape.max_position_embeddings,
            pre_process=layout.is_first_stage,
            post_process=layout.is_last_stage,
            parallel_output=True,
            share_embeddings_and_output_weights=shape.tied_embeddings,
            position_embedding_type="rope",
            rotary_base=shape.rotary_base,
            rope_scaling=shape.rope_scaling_factor is not None,
            rope_scaling_factor=shape.rope_scaling_factor or 1.0,
            pg_collection=layout.groups,
        ).to(layout.device)
        if config.bf16 or config.fp16:
            return Float16Module(config, model)
        return model


def forget_models() -> None:
    """Frees models that nothing uses any more, and the sockets of their groups.

    Modules, hooks and configuration refer to each other in circles, and megatron's
    rotary embedding keeps itself, with its process group, in a cache of its class.
    """
    RotaryEmbedding.forward.cache_clear()
    gc.collect()


def decoded_fields(chosen: Mapping[str, Any], owner: type) -> dict[str, Any]:
    """The user's fields of one of megatron's dataclasses as that class wants them.

    Args:
        chosen: Field name → JSON value; a dtype or an enum member is its name.
        owner: The dataclass.

    Returns:
        Field name → value.

    Raises:
        ArgumentError: The class has no such field, or the name means nothing.
    """
    known = {field.name: field for field in fields(owner)}
    decoded = {}
    for name, value in chosen.items():
        if name not in known:
            raise ArgumentError(
                f"{owner.__name__} of the installed megatron-core has no {name!r}",
                hint="--help lists its fields",
            )
        decoded[name] = _decoded(value, known[name].type, name)
    return decoded


def _decoded(value: Any, kind: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    if kind is torch.dtype or name.endswith("_dtype"):
        dtype = vars(torch).get(value.removeprefix("torch."))
        if not isinstance(dtype, torch.dtype):
            raise ArgumentError(f"--{name.replace('_', '-')} {value!r} is no dtype")
        return dtype
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[value]
    return value


def _layer_spec(
    shape: ModelShape, config: TransformerConfig, settings: MegatronSettings
) -> ModuleSpec | TransformerBlockSubmodules:
    if settings.transformer_impl == "transformer_engine":
        return get_gpt_layer_with_transformer_engine_spec(
            num_experts=config.num_moe_experts,
            moe_grouped_gemm=config.moe_grouped_gemm,
            qk_layernorm=shape.qk_norm,
        )
    layer = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=config.moe_grouped_gemm,
        qk_layernorm=shape.qk_norm,
        normalization="RMSNorm",
    )
    layer.submodules.input_layernorm = RmsNorm
    layer.submodules.pre_mlp_layernorm = RmsNorm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = CausalAttention
    if shape.qk_norm:
        attention.q_layernorm = RmsNorm
        attention.k_layernorm = RmsNorm
    use_row_linear(layer)
    layers = config.num_layers // config.pipeline_model_parallel_size
    return TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=RmsNorm)


def _weight_values(shape: ModelShape) -> dict[str, Any]:
    """Fields that the weights decide, and nobody else."""
    values = {name: getattr(shape, ours) for name, ours in _SHAPE_FIELDS.items()}
    if shape.experts is not None:
        for name, ours in _EXPERT_FIELDS.items():
            values[name] = getattr(shape.experts, ours)
        # Softmax over all experts and then the choice, or the other way round: the
        # second is the first with the weights of the chosen scaled to add up to 1.
        values["moe_router_pre_softmax"] = not shape.experts.renormalised
    return values


def _shape_values(shape: ModelShape) -> dict[str, Any]:
    return _weight_values(shape) | {
        "layernorm_epsilon": shape.norm_epsilon,
        "normalization": "RMSNorm",
        "activation_func": silu,
        "gated_linear_unit": True,
        "add_bias_linear": False,
    }


def _our_values(
    shape: ModelShape, settings: MegatronSettings, sizes: LayoutSettings
) -> dict[str, Any]:
    """Fields that neither the weights nor the user decide."""
    moe_on_cpu = shape.experts is not None and not has_gpu()
    fused = settings.transformer_impl == "transformer_engine"
    return {
        "tensor_model_parallel_size": sizes.tensor_model_parallel_size,
        "pipeline_model_parallel_size": sizes.pipeline_model_parallel_size,
        "context_parallel_size": sizes.context_parallel_size,
        "expert_model_parallel_size": sizes.expert_model_parallel_size,
        "sequence_parallel": sizes.sequence_parallel,
        "params_dtype": torch.float32,
        "bf16": False,
        "fp16": False,
        # On CPU there are no streams, which the other dispatcher makes.
        "moe_token_dispatcher_type": ALLGATHER if moe_on_cpu else "alltoall",
        "moe_router_dtype": "fp32",
        # Reinforcement learning trains what was sampled; nothing else pulls a router.
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        # The loss hands over a sum and a count; megatron adds the counts over all
        # micro-batches and ranks and divides the gradients once.
        "calculate_per_token_loss": True,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True,
        # Every weight is loaded; drawing random ones first would only take time.
        "perform_initialization": False,
        "use_cpu_initialization": not has_gpu(),
        "deterministic_mode": settings.deterministic_mode,
        "masked_softmax_fusion": fused,
        "bias_activation_fusion": fused,
        "bias_dropout_fusion": fused,
        "apply_rope_fusion": False,
        "gradient_accumulation_fusion": False,
        "batch_p2p_comm": has_gpu(),
        "persist_layer_norm": fused,
        # The default spells this deprecatedly and warns about itself.
        "cuda_graph_scope": [],
    }


def _lengths_vary(values: Mapping[str, Any]) -> bool:
    """Whether stages tell each other the length of each micro-batch.

    Those of one step have different lengths. The allgather dispatcher refuses that, so
    that all are padded alike where it is used (`step.plan`).
    """
    dispatcher = values["moe_token_dispatcher_type"]
    return values["pipeline_model_parallel_size"] > 1 and dispatcher != ALLGATHER


def _set_dtypes(values: dict[str, Any], *, chosen: Mapping[str, Any]) -> None:
    """Parameters and pipeline messages follow ``--bf16`` and ``--fp16``, unless set."""
    for flag, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if values[flag] and "params_dtype" not in chosen:
            values["params_dtype"] = dtype
    if "pipeline_dtype" not in chosen:
        values["pipeline_dtype"] = values["params_dtype"]


def _refuse_contradictions(shape: ModelShape, chosen: Mapping[str, Any]) -> None:
    for name, from_weights in _weight_values(shape).items():
        if name in chosen and chosen[name] != from_weights:
            raise ArgumentError(
                f"--{name.replace('_', '-')} {chosen[name]} contradicts the "
                f"checkpoint, whose config.json says {from_weights}",
                hint="leave the flag out: the shape is read from --hf-checkpoint",
            )
