"""Which worker goes where: bundles of GPUs, asked for as one before anything waits.

Colocated, a trainer's rank and an engine share the GPU of one bundle and take turns for
its memory. Apart, each has bundles of its own. Without GPUs there is nothing to place:
actors ask for nothing and share the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax.arguments.groups import ClusterSettings
from relax.errors import ArgumentError, ClusterError

SHARE: Final = 0.5
"""What each of two workers asks of the GPU that they share."""
RESERVE_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where one worker goes.

    Attributes:
        bundle: Number of its bundle; -1 without GPUs.
        gpus: What it asks of the bundle.
        node: Without GPUs: number of its node among those of the run.
    """

    bundle: int
    gpus: float
    node: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where all workers go.

    Attributes:
        bundles: GPUs of each bundle; none without GPUs.
        trainers: One slot a rank.
        engines: One slot an engine.
    """

    bundles: tuple[int, ...]
    trainers: tuple[Slot, ...]
    engines: tuple[Slot, ...]


def plan(
    settings: ClusterSettings, *, has_gpu: bool, trainers: int, engines: int
) -> Plan:
    """Places workers.

    Args:
        settings: Sizes, and whether GPUs are shared.
        has_gpu: Whether there are GPUs to place them on.
        trainers: Ranks to start; 0 when the run does not train.
        engines: Engines to start; 0 when it does not generate.

    Raises:
        ArgumentError: An engine of several GPUs was to share them.
    """
    if not has_gpu:
        return Plan(
            bundles=(),
            trainers=tuple(
                Slot(bundle=-1, gpus=0, node=rank // settings.actor_num_gpus_per_node)
                for rank in range(trainers)
            ),
            engines=tuple(
                Slot(bundle=-1, gpus=0, node=number % settings.actor_num_nodes)
                for number in range(engines)
            ),
        )
    per_engine = settings.rollout_num_gpus_per_engine
    if settings.colocate and trainers and engines:
        if per_engine != 1:
            raise ArgumentError(
                f"--rollout-num-gpus-per-engine {per_engine} under --colocate is not "
                "available in this version",
                hint="use engines of one GPU, or place them apart",
            )
        shared = tuple(
            Slot(bundle=n, gpus=SHARE) for n in range(max(trainers, engines))
        )
        return Plan(
            bundles=(1,) * len(shared),
            trainers=shared[:trainers],
            engines=shared[:engines],
        )
    return Plan(
        bundles=(1,) * trainers + (per_engine,) * engines,
        trainers=tuple(Slot(bundle=n, gpus=1) for n in range(trainers)),
        engines=tuple(
            Slot(bundle=trainers + n, gpus=per_engine) for n in range(engines)
        ),
    )


async def reserve(bundles: Sequence[int]) -> Any:
    """Reserves all bundles at once.

    Args:
        bundles: GPUs of each.

    Returns:
        Ray's placement group; None when there is nothing to reserve.

    Raises:
        ClusterError: The nodes have not as many; names both numbers.
    """
    if not bundles:
        return None
    import ray  # noqa: PLC0415

    there = int(ray.cluster_resources().get("GPU", 0))
    if sum(bundles) > there:
        raise ClusterError(
            f"the run needs {sum(bundles)} GPUs and the cluster has {there}",
            hint="set --actor-num-gpus-per-node, --rollout-num-gpus or --colocate",
        )
    group = ray.util.placement_group([{"GPU": count} for count in bundles])
    try:
        await asyncio.wait_for(group.ready(), RESERVE_SECONDS)
    except TimeoutError as error:
        raise ClusterError(
            f"{list(bundles)} GPUs could not be reserved within {RESERVE_SECONDS:.0f} "
            "s: other programs hold them, or no node has as many together",
            hint="see `ray status`",
        ) from error
    return group


def options(slot: Slot, group: Any) -> Mapping[str, Any]:
    """Ray's options that put an actor into its bundle."""
    from ray.util.scheduling_strategies import (  # noqa: PLC0415
        PlacementGroupSchedulingStrategy,
    )

    return {
        "num_gpus": slot.gpus,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=slot.bundle
        ),
    }


def bundle_nodes(group: Any) -> Mapping[int, str]:
    """Bundle → Ray's id of the node that it was given on."""
    import ray  # noqa: PLC0415

    table = ray.util.placement_group_table(group)
    found: Mapping[int, str] = table["bundles_to_node_id"]
    return found
