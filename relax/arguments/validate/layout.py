"""The parallel layout, the GPUs it needs, and what a CPU cannot do."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Final

from relax.arguments.arguments import Arguments
from relax.arguments.validate.rule import Machine, Rule, broken


def world_holds_layout(arguments: Arguments, machine: Machine) -> None:
    """The ranks are whole copies of the model."""
    if arguments.debug.debug_rollout_only:
        return
    world = arguments.cluster.world_size
    size = arguments.layout.model_parallel_size
    if world % size:
        raise broken(
            arguments,
            "actor_num_gpus_per_node",
            f"{world} training ranks hold no whole number of copies of {size} ranks"
            " (tensor x pipeline x context)",
            fix=f"choose a multiple of {size} ranks, or a smaller layout",
        )


def world_holds_experts(arguments: Arguments, machine: Machine) -> None:
    """The same for the experts' own layout."""
    if arguments.debug.debug_rollout_only:
        return
    layout = arguments.layout
    own = arguments.megatron.transformer.get("expert_tensor_parallel_size")
    tensor = layout.tensor_model_parallel_size if own is None else own
    expert = layout.expert_model_parallel_size
    size = tensor * expert * layout.pipeline_model_parallel_size
    world = arguments.cluster.world_size
    if expert > 1 and world % size:
        raise broken(
            arguments,
            "expert_model_parallel_size",
            f"{world} training ranks hold no whole number of expert copies of {size}"
            " ranks (expert tensor x expert x pipeline)",
            fix=f"choose a multiple of {size} ranks, or fewer expert ranks",
        )


def nodes_hold_gpus(arguments: Arguments, machine: Machine) -> None:
    """A node has the GPUs that are asked of it."""
    if arguments.debug.debug_rollout_only:
        return
    cluster = arguments.cluster
    if machine.has_gpu and cluster.actor_num_gpus_per_node > cluster.num_gpus_per_node:
        raise broken(
            arguments,
            "actor_num_gpus_per_node",
            f"a node has {cluster.num_gpus_per_node} GPUs",
            fix="choose fewer, or say --num-gpus-per-node",
        )


def engines_are_whole(arguments: Arguments, machine: Machine) -> None:
    """Rollout GPUs make whole engines, and at least one where there is generation."""
    cluster = arguments.cluster
    if cluster.rollout_num_gpus % cluster.rollout_num_gpus_per_engine:
        raise broken(
            arguments,
            "rollout_num_gpus",
            f"makes no whole engines of {cluster.rollout_num_gpus_per_engine}",
            fix="choose a multiple of --rollout-num-gpus-per-engine",
        )
    if cluster.rollout_num_gpus == 0 and not arguments.debug.debug_train_only:
        raise broken(
            arguments,
            "rollout_num_gpus",
            "0 GPUs cannot generate",
            fix="give at least those of one engine",
        )


def cpu_has_no_gpu_features(arguments: Arguments, machine: Machine) -> None:
    """What megatron-core cannot do without a GPU."""
    if machine.has_gpu:
        return
    for name, problem, fix in _cpu_problems(arguments):
        raise broken(arguments, name, problem, fix=fix)


def _cpu_problems(arguments: Arguments) -> list[tuple[str, str, str]]:
    transformer = arguments.megatron.transformer
    found: list[tuple[str, str, str]] = []
    if arguments.layout.context_parallel_size > 1:
        problem = "context parallelism needs GPUs"
        found.append(("context_parallel_size", problem, "use 1 on this machine"))
    if arguments.megatron.transformer_impl == "transformer_engine":
        problem = "Transformer Engine needs GPUs"
        found.append(("transformer_impl", problem, "use local on this machine"))
    for name in ("offload_train", "offload_rollout"):
        if arguments.values()[name]:
            problem = "there is no GPU memory to free"
            found.append((name, problem, "leave it away on this machine"))
    for name, innocent in _NEEDS_GPU.items():
        if transformer.get(name, innocent[0]) not in innocent:
            problem = "needs GPUs"
            found.append((name, problem, f"use {innocent[0]} on this machine"))
    return found + [
        (name, "needs GPUs", "leave it away on this machine")
        for name in ("fp8", "fp4")
        if transformer.get(name) is not None
    ]


_NEEDS_GPU: Final[dict[str, tuple[Any, ...]]] = {
    "hidden_dropout": (0.0,),
    "attention_dropout": (0.0,),
    "moe_token_dispatcher_type": ("allgather",),
}
"""Fields of TransformerConfig, and the values that a CPU can do."""


def conversion_is_there(arguments: Arguments, machine: Machine) -> None:
    """Megatron-Bridge converts only where it is installed."""
    if arguments.checkpoint.megatron_to_hf_mode != "bridge":
        return
    try:
        importlib.metadata.version("megatron-bridge")
    except importlib.metadata.PackageNotFoundError as error:
        raise broken(
            arguments,
            "megatron_to_hf_mode",
            "Megatron-Bridge is not installed here",
            fix="use raw, or install megatron-bridge",
        ) from error


RULES: Final[tuple[Rule, ...]] = (
    cpu_has_no_gpu_features,
    world_holds_layout,
    world_holds_experts,
    nodes_hold_gpus,
    engines_are_whole,
    conversion_is_there,
)
