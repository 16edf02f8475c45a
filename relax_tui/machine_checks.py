"""Versions and settings of a machine that are known to go wrong together."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from relax.arguments.environment import recorded_environment

FEWEST_FILES = 4096
SMALLEST_SHM = 8 << 30
_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A combination that is known to go wrong.

    Attributes:
        what: What is so.
        why: What goes wrong.
        fix: What to do.
    """

    what: str
    why: str
    fix: str


def known_troubles(versions: Mapping[str, str]) -> list[Trouble]:
    """Known-bad combinations on this machine.

    Args:
        versions: Installed packages by name; those that are missing are left out.
    """
    found = [check(versions) for check in _OF_VERSIONS]
    found += [check() for check in _OF_MACHINE]
    return [trouble for trouble in found if trouble is not None]


def memory_limit() -> int | None:
    """Bytes that this container may use; None without a limit."""
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        # Version 1 writes a very large number where there is no limit.
        if text.isdecimal() and int(text) < 1 << 60:
            return int(text)
    return None


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: ``0.5.11+cu128`` → (0, 5, 11)."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _kernels(versions: Mapping[str, str]) -> Trouble | None:
    sglang, kernels = versions.get("sglang"), versions.get("kernels")
    if sglang is None or kernels is None:
        return None
    if release(sglang) >= (0, 5, 12) or release(kernels) < (0, 14):
        return None
    return Trouble(
        what=f"sglang {sglang} beside kernels {kernels}",
        why="sglang fails to import",
        fix="pip uninstall kernels",
    )


def _one_torch(versions: Mapping[str, str]) -> Trouble | None:
    if "sglang" not in versions or "megatron-core" not in versions:
        return None
    return Trouble(
        what="sglang and megatron-core in one environment",
        why="sglang pins a torch of its own, and an upgrade of either breaks the other",
        fix="an environment for sglang, named by --sglang-python",
    )


def _old_ray(versions: Mapping[str, str]) -> Trouble | None:
    ray = versions.get("ray")
    if ray is None or release(ray) >= (2, 50):
        return None
    return Trouble(
        what=f"ray {ray}", why="relax uses names that came with 2.50", fix="upgrade ray"
    )


def _attention(versions: Mapping[str, str]) -> Trouble | None:
    engine = versions.get("transformer-engine")
    if engine is None or release(engine) >= (2, 8):
        return None
    return Trouble(
        what=f"transformer-engine {engine}",
        why="fused attention under CP was not deterministic in versions before 2.8",
        fix="--attention-backend flash, or 2.8 and newer",
    )


def _expandable() -> Trouble | None:
    environment = recorded_environment()
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:True" in environment.get(name, ""):
            return Trouble(
                what=f"{name} has expandable_segments",
                why="the engine's memory saver cannot release such memory (--offload)",
                fix=f"unset {name}",
            )
    return None


def _blocking() -> Trouble | None:
    if recorded_environment().get("CUDA_LAUNCH_BLOCKING") != "1":
        return None
    return Trouble(
        what="CUDA_LAUNCH_BLOCKING=1",
        why="finds the kernel of an illegal access; several times slower otherwise",
        fix="unset CUDA_LAUNCH_BLOCKING",
    )


def _files() -> Trouble | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES:
        return None
    return Trouble(
        what=f"at most {soft} open files",
        why="Ray opens thousands; actors then die without a word",
        fix="ulimit -n 65536",
    )


def _shared_memory() -> Trouble | None:
    try:
        total = shutil.disk_usage("/dev/shm").total  # noqa: S108 - only its size
    except OSError:
        return None
    if total >= SMALLEST_SHM:
        return None
    return Trouble(
        what=f"/dev/shm holds {total / 1e9:.1f} GB",  # noqa: S108 - its name
        why="Ray's object store and weights for the engine go through it",
        fix="docker run --shm-size 64g (or --ipc=host)",
    )


_OF_VERSIONS: tuple[Callable[[Mapping[str, str]], Trouble | None], ...] = (
    _kernels,
    _one_torch,
    _old_ray,
    _attention,
)
_OF_MACHINE: tuple[Callable[[], Trouble | None], ...] = (
    _expandable,
    _blocking,
    _files,
    _shared_memory,
)
