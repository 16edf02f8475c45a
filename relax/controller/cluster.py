"""Ray, the only distributed layer: starting, joining and ending it, and its nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.arguments.groups import ClusterSettings
from relax.controller.reaper import Reaper, descendants
from relax.errors import ClusterError


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """The Ray that this driver started.

    Attributes:
        pids: Its processes on this host.
        session_dir: Its session folder with sockets and logs.
    """

    pids: frozenset[int]
    session_dir: Path


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """A node of the cluster.

    Attributes:
        id: Ray's.
        address: Its IP address.
        host: Its name.
    """

    id: str
    address: str
    host: str

    def __str__(self) -> str:
        return f"node {self.address} ({self.host}, Ray node {self.id[:8]})"


def start_ray(settings: ClusterSettings, *, run_id: str, reaper: Reaper) -> RayNode:
    """Starts Ray on this machine, or joins the cluster that was named.

    A bare ``ray.init()`` would join whatever cluster runs on a head node, so "local" is
    said aloud.

    Args:
        settings: Address and sizes.
        run_id: Namespace of the run's actors.
        reaper: Is told what to end and remove if the driver dies.

    Raises:
        ClusterError: The cluster that was named cannot be joined.
    """
    # Slow to import, and not needed to refuse bad arguments.
    import ray  # noqa: PLC0415

    before = descendants({os.getpid()})
    local = settings.ray_address is None
    try:
        ray.init(
            address="local" if local else settings.ray_address,
            namespace=run_id,
            include_dashboard=False if local else None,
            object_store_memory=settings.object_store_bytes if local else None,
            log_to_driver=False,
            configure_logging=False,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if local:
            raise
        raise _not_joined(str(settings.ray_address), error) from error
    node = ray._private.worker._global_node
    pids = frozenset(descendants({os.getpid()}) - before) if local else frozenset()
    for pid in pids:
        reaper.watch_process(pid)
    session_dir = Path(node.get_session_dir_path())
    if local:
        reaper.watch_path(session_dir)
    return RayNode(pids=pids, session_dir=session_dir)


def _not_joined(address: str, error: Exception) -> ClusterError:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ClusterError(
        f"the Ray cluster cannot be joined: {said}",
        where=f"--ray-address {address}",
        hint="a Ray node of it must run on this machine, and RAY_AUTH_MODE and the "
        "token must be the cluster's; `ray status --address=…` says whether it lives",
    )


def cluster_nodes() -> list[ClusterNode]:
    """The living nodes of the cluster that was joined, the driver's first."""
    import ray  # noqa: PLC0415

    here = ray.get_runtime_context().get_node_id()
    found = [
        ClusterNode(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            host=node["NodeManagerHostname"],
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.id != here, node.address, node.id))


def on_node(node: str) -> Mapping[str, Any]:
    """Ray's options of an actor that lives on a node and asks nothing of it."""
    from ray.util.scheduling_strategies import (  # noqa: PLC0415
        NodeAffinitySchedulingStrategy,
    )

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}


def stop_ray() -> None:
    """Ends Ray, or leaves the cluster."""
    import ray  # noqa: PLC0415

    ray.shutdown()


def signal_process(pid: int, number: signal.Signals) -> bool:
    """Sends a signal; False when the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
