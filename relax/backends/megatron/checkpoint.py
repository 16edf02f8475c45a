"""The trainer's own checkpoint: everything that decides the next step's bits.

    FOLDER/
      relax_checkpoint.json         `relax.backends.checkpoint_meta`; written last
      tp00-pp00/                    one folder a model part (and replica, when these
        model.safetensors           differ: `_replicas_differ`); megatron's names
        optimizer.safetensors       masters and moments, as "<parameter>|<state>"
        optimizer.json              numbers that are not tensors
        rng.safetensors             random states

Only tensors and JSON: nothing in it is ever unpickled. It is resumed on the layout that
wrote it; an HF folder (`MegatronTrainer.save_hf`) fits every layout.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from relax.backends.checkpoint_meta import CheckpointMeta, read_meta, write_meta
from relax.backends.megatron.convert.hf_io import sync_folder
from relax.backends.megatron.mcore import ChainedOptimizer, MegatronOptimizer
from relax.backends.megatron.parallel import ParallelLayout
from relax.errors import ArgumentError


def save_checkpoint(
    folder: str | Path,
    *,
    parameters: Mapping[str, nn.Parameter],
    optimizer: MegatronOptimizer,
    layout: ParallelLayout,
    meta: CheckpointMeta,
) -> None:
    """Writes a checkpoint; all ranks call it together.

    Args:
        folder: Where; must not exist. On storage that every rank sees.
        parameters: This rank's parameters by global name.
        optimizer: megatron's optimizer.
        layout: This rank's place.
        meta: What the checkpoint says about itself.

    Raises:
        ArgumentError: The folder exists.
    """
    folder = Path(folder)
    if folder.exists():
        raise ArgumentError(f"{folder} exists", hint="give a path that does not")
    scratch = folder.with_name(f".{folder.name}.tmp")
    dist.barrier()
    if layout.rank == 0:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    dist.barrier()
    if layout.data_rank == 0 or _replicas_differ(layout, meta):
        _write_part(scratch / _part_name(layout, meta), parameters, optimizer)
    dist.barrier()
    if layout.rank == 0:
        write_meta(scratch, meta)
        sync_folder(scratch)
        scratch.rename(folder)
        sync_folder(folder.parent)
    dist.barrier()


def load_checkpoint(
    folder: str | Path,
    *,
    parameters: Mapping[str, nn.Parameter],
    optimizer: MegatronOptimizer | None,
    layout: ParallelLayout,
    expected: CheckpointMeta,
) -> CheckpointMeta:
    """Restores what `save_checkpoint` wrote.

    Args:
        folder: The checkpoint.
        parameters: This rank's parameters by global name; overwritten.
        optimizer: Its state is overwritten and random states are restored; None
            restores the weights alone (a reference model).
        layout: This rank's place.
        expected: The layout of now; its weights_version is not looked at.

    Returns:
        What the checkpoint says about itself.

    Raises:
        ArgumentError: The checkpoint is newer, damaged, or of another layout.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    if meta.layout != expected.layout:
        raise ArgumentError(
            f"{folder} was written on layout {meta.layout}, this run has "
            f"{expected.layout}",
            hint="resume on the same layout, or load an HF folder saved from it",
        )
    part = folder / _part_name(layout, meta)
    _restore_parameters(part / "model.safetensors", parameters)
    if optimizer is not None:
        if meta.distributed_optimizer != expected.distributed_optimizer:
            raise ArgumentError(
                f"--use-distributed-optimizer was {meta.distributed_optimizer} when "
                f"{folder} was written"
            )
        _restore_optimizer(part, optimizer, parameters)
        _restore_rng(part / "rng.safetensors")
    return meta


def _part_name(layout: ParallelLayout, meta: CheckpointMeta) -> str:
    name = f"tp{layout.tensor_rank:02d}-pp{layout.pipeline_rank:02d}"
    return (
        f"{name}-dp{layout.data_rank:03d}" if _replicas_differ(layout, meta) else name
    )


def _replicas_differ(layout: ParallelLayout, meta: CheckpointMeta) -> bool:
    """Whether replicas hold different optimizer states, or different experts."""
    return meta.distributed_optimizer or layout.expert_size > 1


def _write_part(
    part: Path, parameters: Mapping[str, nn.Parameter], optimizer: MegatronOptimizer
) -> None:
    part.mkdir()
    weights = {name: p.detach().cpu().contiguous() for name, p in parameters.items()}
    save_file(weights, part / "model.safetensors")
    tensors, numbers = _optimizer_state(optimizer, parameters)
    save_file(tensors, part / "optimizer.safetensors")
    _write_json(part / "optimizer.json", numbers)
    save_file(_rng_states(), part / "rng.safetensors")
    sync_folder(part)


def _restore_parameters(path: Path, parameters: Mapping[str, nn.Parameter]) -> None:
    stored = _loaded(path)
    if set(stored) != set(parameters):
        raise ArgumentError(f"{path} is of another model: its parameters differ")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if stored[name].shape != parameter.shape:
                raise ArgumentError(
                    f"{name} has shape {list(stored[name].shape)} in {path}, the model "
                    f"has {list(parameter.shape)}"
                )
            parameter.copy_(stored[name])


def _optimizer_state(
    optimizer: MegatronOptimizer, parameters: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State of the torch optimizers inside megatron's, by stable names."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, inner, master in _masters(optimizer, parameters):
        if not _is_model_parameter(master, parameters):
            tensors[f"{name}|master"] = master.detach().cpu().contiguous()
        for key, value in inner.state[master].items():
            if isinstance(value, Tensor):
                tensors[f"{name}|{key}"] = value.detach().cpu().contiguous()
            else:
                numbers[f"{name}|{key}"] = value
    for number, inner in enumerate(inner_optimizers(optimizer)):
        for place, group in enumerate(inner.param_groups):
            if "step" in group:  # fused optimizers count steps a group
                numbers[f"group-{number}-{place}|step"] = int(group["step"])
    return tensors, numbers


def _restore_optimizer(
    part: Path, optimizer: MegatronOptimizer, parameters: Mapping[str, nn.Parameter]
) -> None:
    tensors = _loaded(part / "optimizer.safetensors")
    numbers = json.loads((part / "optimizer.json").read_text(encoding="utf-8"))
    by_parameter: dict[str, dict[str, Any]] = {}
    for full, value in [*tensors.items(), *numbers.items()]:
        name, _, key = full.rpartition("|")
        by_parameter.setdefault(name, {})[key] = value
    for name, inner, master in _masters(optimizer, parameters):
        state = by_parameter.get(name, {})
        saved_master = state.pop("master", None)
        if saved_master is not None:
            with torch.no_grad():
                master.copy_(saved_master)
        inner.state[master] = {
            key: _placed(value, key, master) for key, value in state.items()
        }
    for number, inner in enumerate(inner_optimizers(optimizer)):
        for place, group in enumerate(inner.param_groups):
            saved = by_parameter.get(f"group-{number}-{place}", {})
            group.update(saved)


def _placed(value: Any, key: str, master: Tensor) -> Any:
    """A state tensor where torch's optimizers keep it: step counts stay on the host."""
    if not isinstance(value, Tensor) or key == "step":
        return value
    return value.to(master.device)


def _masters(
    optimizer: MegatronOptimizer, parameters: Mapping[str, nn.Parameter]
) -> Iterator[tuple[str, torch.optim.Optimizer, Tensor]]:
    """Each tensor that is really optimised, with a name that lasts over processes.

    It is the parameter itself in float32 training, and a float32 copy or a piece of one
    else; those are numbered in the optimizer's own order.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    for number, inner in enumerate(inner_optimizers(optimizer)):
        for group_number, group in enumerate(inner.param_groups):
            for place, master in enumerate(group["params"]):
                fallback = f"master-{number}-{group_number}-{place}"
                yield names.get(id(master), fallback), inner, master


def _is_model_parameter(tensor: Tensor, parameters: Mapping[str, nn.Parameter]) -> bool:
    return any(tensor is parameter for parameter in parameters.values())


def inner_optimizers(optimizer: MegatronOptimizer) -> list[torch.optim.Optimizer]:
    """The torch optimizers inside megatron's, in its own order."""
    if isinstance(optimizer, ChainedOptimizer):
        return [chained.optimizer for chained in optimizer.chained_optimizers]
    return [optimizer.optimizer]


def _rng_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_rng(path: Path) -> None:
    states = _loaded(path)
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


def _loaded(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, sort_keys=True), encoding="utf-8")
