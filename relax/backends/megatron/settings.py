"""What a training process is told."""

from __future__ import annotations

from dataclasses import dataclass

from relax.arguments.groups.algorithm import AlgorithmSettings
from relax.arguments.groups.batch import BatchSettings
from relax.arguments.groups.checkpoint import CheckpointSettings
from relax.arguments.groups.layout import LayoutSettings
from relax.arguments.groups.megatron import MegatronSettings


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """What a training process is told.

    Attributes:
        checkpoint: Where weights come from.
        batch: Batch sizes, in samples over all replicas.
        algorithm: Loss and advantages.
        layout: Sizes of the parallel axes.
        megatron: Fields for megatron-core, reference mode, seed.
        rollout_temperature: Logits are divided by it, as the sampler did.
        rank: This process's global rank.
        world_size: Training processes.
        init_method: Meeting place of the processes, ``file:///…`` or ``tcp://…``.
        keep_weights: Earlier weight versions kept on the host.
        keep_weights_bytes: Bytes that these may take on this rank.
    """

    checkpoint: CheckpointSettings
    batch: BatchSettings
    algorithm: AlgorithmSettings
    layout: LayoutSettings
    megatron: MegatronSettings
    rollout_temperature: float
    rank: int
    world_size: int
    init_method: str
    keep_weights: int = 0
    keep_weights_bytes: int = 8 << 30
