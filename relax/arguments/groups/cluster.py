"""Machines, GPUs (slots where there is no GPU) and Ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from relax.arguments.flag import NON_NEGATIVE, POSITIVE, Bounds, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Who runs where.

    On a machine without GPUs every ``*_num_gpus*`` counts slots: one process each.
    """

    actor_num_nodes: int = field(
        default=1, metadata=flag("Nodes that train.", bounds=POSITIVE)
    )
    actor_num_gpus_per_node: int = field(
        default=8,
        metadata=flag(
            "GPUs (slots on CPU) that train on each of these nodes.",
            bounds=POSITIVE,
            derived="8 with GPUs; on CPU the fewest slots that hold the layout",
        ),
    )
    rollout_num_gpus: int = field(
        default=1,
        metadata=flag(
            "GPUs (slots on CPU) that generate.",
            bounds=NON_NEGATIVE,
            derived="the trainer's GPUs under --colocate; one engine on CPU",
        ),
    )
    rollout_num_gpus_per_engine: int = field(
        default=1, metadata=flag("GPUs of one rollout engine.", bounds=POSITIVE)
    )
    num_gpus_per_node: int = field(
        default=8, metadata=flag("GPUs that a node has.", bounds=POSITIVE)
    )
    colocate: bool = field(
        default=False, metadata=flag("Train and generate on the same GPUs, in turn.")
    )
    offload_train: bool = field(
        default=False,
        metadata=flag(
            "Free the trainer's GPU memory while the engines generate.",
            derived="on under --colocate with GPUs",
        ),
    )
    offload_rollout: bool = field(
        default=False,
        metadata=flag(
            "Free the engines' GPU memory while the trainer works.",
            derived="on under --colocate with GPUs",
        ),
    )
    ray_address: str | None = field(
        default=None,
        metadata=flag(
            "Ray cluster to join; without it a private one on this machine.", ours=True
        ),
    )
    object_store_bytes: int = field(
        default=512 * 1024 * 1024,
        metadata=flag(
            "Size of Ray's shared-memory object store, in bytes.",
            ours=True,
            bounds=Bounds(75 * 1024 * 1024),
        ),
    )
    threads_per_actor: int = field(
        default=1,
        metadata=flag(
            "CPU threads of each worker process; part of what decides bits on CPU.",
            ours=True,
            bounds=POSITIVE,
        ),
    )

    @property
    def world_size(self) -> int:
        """Number of training ranks."""
        return self.actor_num_nodes * self.actor_num_gpus_per_node

    @property
    def num_engines(self) -> int:
        """Number of rollout engines."""
        return self.rollout_num_gpus // self.rollout_num_gpus_per_engine
