"""The parallel layout of a training process, and the only door to megatron's state.

`open_layout` starts torch.distributed and megatron's groups and returns what the rest
of the package needs as one frozen value; no other module asks megatron's globals.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from relax.arguments.groups.layout import LayoutSettings
from relax.backends.megatron.cpu import has_gpu, training_device
from relax.backends.megatron.mcore import (
    ProcessGroupCollection,
    model_parallel_cuda_manual_seed,
)
from relax.errors import ArgumentError, InternalError

# isort: split
# After `mcore`, which imports megatron-core quietly.
from megatron.core import parallel_state

GROUP_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class ParallelLayout:
    """Where this process stands on every parallel axis.

    Attributes:
        rank: Global rank, 0 ≤ rank < world_size.
        world_size: Training processes.
        device: Device of the model's tensors.
        tensor_size: Processes that share each layer's matrices.
        tensor_rank: This process among them.
        pipeline_size: Stages.
        pipeline_rank: This process's stage.
        data_size: Replicas that each see other samples.
        data_rank: This process's replica.
        expert_size: Processes that share the experts of a layer.
        expert_rank: This process among them.
        expert_tensor_size: Processes that share each expert's matrices.
        expert_tensor_rank: This process among them.
        tensor_group: Process group of the tensor axis.
        pipeline_group: Process group of the pipeline axis.
        data_group: Process group of the data axis, context parallel ranks included.
        model_group: Tensor and pipeline axes together: one whole model.
        expert_group: Process group of the expert axis.
        expert_tensor_group: Process group of the experts' own tensor axis.
        last_stage_rank: Global rank of the last stage of this pipeline.
        groups: megatron's own collection of all groups.
    """

    rank: int
    world_size: int
    device: torch.device
    tensor_size: int
    tensor_rank: int
    pipeline_size: int
    pipeline_rank: int
    data_size: int
    data_rank: int
    expert_size: int
    expert_rank: int
    expert_tensor_size: int
    expert_tensor_rank: int
    tensor_group: dist.ProcessGroup
    pipeline_group: dist.ProcessGroup
    data_group: dist.ProcessGroup
    model_group: dist.ProcessGroup
    expert_group: dist.ProcessGroup
    expert_tensor_group: dist.ProcessGroup
    last_stage_rank: int
    groups: ProcessGroupCollection

    @property
    def is_first_stage(self) -> bool:
        """Whether this process holds the input embedding."""
        return self.pipeline_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this process holds the output layer."""
        return self.pipeline_rank == self.pipeline_size - 1

    @property
    def speaks_for_replica(self) -> bool:
        """Whether this process reports what all processes of its replica know.

        Scores are the same on every tensor rank and are sent to every stage; one rank
        of each replica hands them on, so that nothing is counted twice.
        """
        return self.tensor_rank == 0 and self.pipeline_rank == 0


def open_layout(
    settings: LayoutSettings,
    *,
    rank: int,
    world_size: int,
    init_method: str,
    seed: int,
    expert_tensor_size: int | None = None,
) -> ParallelLayout:
    """Joins the process group and builds megatron's groups.

    Args:
        settings: Sizes of the axes.
        rank: This process's global rank.
        world_size: Training processes.
        init_method: Meeting place, ``file:///…`` or ``tcp://host:port``.
        seed: Start of megatron's random states on a GPU.
        expert_tensor_size: Processes that share an expert's matrices; None: those of
            the tensor axis.

    Returns:
        The layout.

    Raises:
        ArgumentError: The sizes do not divide the number of processes.
        InternalError: This process has already joined a group.
    """
    _check_sizes(settings, world_size)
    _join(rank=rank, world_size=world_size, init_method=init_method)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=settings.tensor_model_parallel_size,
        pipeline_model_parallel_size=settings.pipeline_model_parallel_size,
        context_parallel_size=settings.context_parallel_size,
        expert_model_parallel_size=settings.expert_model_parallel_size,
        expert_tensor_parallel_size=expert_tensor_size,
        create_gloo_process_groups=has_gpu(),
    )
    torch.manual_seed(seed)
    if has_gpu():
        model_parallel_cuda_manual_seed(seed)
    return _place(rank, world_size)


class MeetingPoint:
    """A port where ranks meet; open as long as it is kept.

    Args:
        host: Address of this node by which the others reach it.

    Attributes:
        place: ``tcp://host:port``.
    """

    def __init__(self, host: str) -> None:
        # Port 0: the system chooses one, so that nobody can take it in between.
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        shown = f"[{host}]" if ":" in host else host
        self.place = f"tcp://{shown}:{self._store.port}"


def _meet(init_method: str) -> dict[str, Any]:
    """How torch is told where the ranks meet."""
    place = urlsplit(init_method)
    if place.scheme != "tcp":
        return {"init_method": init_method}
    store = dist.TCPStore(place.hostname, place.port, is_master=False)
    return {"store": store}


def _join(*, rank: int, world_size: int, init_method: str) -> None:
    if dist.is_initialized():
        raise InternalError("torch.distributed is already initialised in this process")
    if has_gpu():
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        backend="nccl" if has_gpu() else "gloo",
        **_meet(init_method),
        rank=rank,
        world_size=world_size,
        timeout=GROUP_TIMEOUT,
    )


def _place(rank: int, world_size: int) -> ParallelLayout:
    """What megatron's groups say about this process."""
    return ParallelLayout(
        rank=rank,
        world_size=world_size,
        device=training_device(),
        tensor_size=parallel_state.get_tensor_model_parallel_world_size(),
        tensor_rank=parallel_state.get_tensor_model_parallel_rank(),
        pipeline_size=parallel_state.get_pipeline_model_parallel_world_size(),
        pipeline_rank=parallel_state.get_pipeline_model_parallel_rank(),
        data_size=parallel_state.get_data_parallel_world_size(),
        data_rank=parallel_state.get_data_parallel_rank(),
        expert_size=parallel_state.get_expert_model_parallel_world_size(),
        expert_rank=parallel_state.get_expert_model_parallel_rank(),
        expert_tensor_size=parallel_state.get_expert_tensor_parallel_world_size(),
        expert_tensor_rank=parallel_state.get_expert_tensor_parallel_rank(),
        tensor_group=parallel_state.get_tensor_model_parallel_group(),
        pipeline_group=parallel_state.get_pipeline_model_parallel_group(),
        data_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
        model_group=parallel_state.get_model_parallel_group(),
        expert_group=parallel_state.get_expert_model_parallel_group(),
        expert_tensor_group=parallel_state.get_expert_tensor_parallel_group(),
        last_stage_rank=parallel_state.get_pipeline_model_parallel_last_rank(),
        groups=ProcessGroupCollection.use_mpu_process_groups(),
    )


def gathered(
    values: NDArray[np.float64], layout: ParallelLayout
) -> NDArray[np.float64]:
    """Per-token float32 values of all replicas, one after the other.

    A collective over the data axis.

    Args:
        values: This replica's, [K, own tokens]; K is the same everywhere. They must be
            float32 numbers, whatever their dtype.
        layout: This rank's place.

    Returns:
        [K, tokens of all replicas], float64.
    """
    if layout.data_size == 1:
        return values
    own = torch.from_numpy(values.astype(np.float32)).to(layout.device)
    width = torch.tensor(own.shape[1], device=layout.device)
    widths = [torch.empty_like(width) for _ in range(layout.data_size)]
    dist.all_gather(widths, width, group=layout.data_group)
    longest = max(int(one) for one in widths)
    padded = own.new_zeros(own.shape[0], longest)
    padded[:, : own.shape[1]] = own
    everyone = [torch.empty_like(padded) for _ in widths]
    dist.all_gather(everyone, padded, group=layout.data_group)
    pieces = [one[:, : int(n)] for one, n in zip(everyone, widths, strict=True)]
    return torch.cat(pieces, dim=1).cpu().numpy().astype(np.float64)


def close_layout() -> bool:
    """Leaves megatron's groups and the process group; harmless when there are none.

    Returns:
        Whether this process had joined any.
    """
    joined = dist.is_initialized()
    if parallel_state.is_initialized():
        parallel_state.destroy_model_parallel()
        # It forgets to let go of some groups, whose sockets then stay open.
        for name, value in list(vars(parallel_state).items()):
            if isinstance(value, dist.ProcessGroup):
                setattr(parallel_state, name, None)
    if joined:
        dist.destroy_process_group()
    return joined


def _check_sizes(settings: LayoutSettings, world_size: int) -> None:
    axes = {
        "--tensor-model-parallel-size": settings.tensor_model_parallel_size,
        "--pipeline-model-parallel-size": settings.pipeline_model_parallel_size,
        "--context-parallel-size": settings.context_parallel_size,
    }
    product = 1
    for size in axes.values():
        product *= size
    if world_size % product:
        spelled = " × ".join(f"{flag} {size}" for flag, size in axes.items())
        raise ArgumentError(
            f"{world_size} training processes cannot be split by {spelled} = {product}",
            hint="--actor-num-nodes × --actor-num-gpus-per-node must be a multiple",
        )
