"""Starting and ending Ray, the only distributed layer."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from relax.arguments.groups import ClusterSettings
from relax.controller.reaper import Reaper, descendants


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """The Ray that this driver started.

    Attributes:
        pids: Its processes on this host.
        session_dir: Its session folder with sockets and logs.
    """

    pids: frozenset[int]
    session_dir: Path


def start_ray(settings: ClusterSettings, *, run_id: str, reaper: Reaper) -> RayNode:
    """Starts Ray on this machine, or joins the cluster that was named.

    A bare ``ray.init()`` would join whatever cluster runs on a head node, so "local" is
    said aloud.

    Args:
        settings: Address and sizes.
        run_id: Namespace of the run's actors.
        reaper: Is told what to end and remove if the driver dies.
    """
    # Slow to import, and not needed to refuse bad arguments.
    import ray  # noqa: PLC0415

    before = descendants({os.getpid()})
    local = settings.ray_address is None
    ray.init(
        address="local" if local else settings.ray_address,
        namespace=run_id,
        include_dashboard=False if local else None,
        object_store_memory=settings.object_store_bytes if local else None,
        log_to_driver=False,
        configure_logging=False,
    )
    node = ray._private.worker._global_node
    pids = frozenset(descendants({os.getpid()}) - before) if local else frozenset()
    for pid in pids:
        reaper.watch_process(pid)
    session_dir = Path(node.get_session_dir_path())
    if local:
        reaper.watch_path(session_dir)
    return RayNode(pids=pids, session_dir=session_dir)


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
