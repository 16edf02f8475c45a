"""What exactly ran: versions and the state of the checkout."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = (
    "relax-rl",
    "torch",
    "megatron-core",
    "transformer-engine",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "ray",
    "sglang",
    "transformers",
    "numpy",
    "pyarrow",
)
GIT_SECONDS = 5.0


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide bits.

    Read from package metadata, so that nothing heavy is imported.
    """
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any]:
    """Commit of the checkout that relax runs from, and whether it was changed.

    Returns:
        ``{"commit": …, "dirty": …}``; empty outside a checkout.
    """
    folder = Path(__file__).resolve().parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "dirty": dirty}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=GIT_SECONDS,
    )
    return done.stdout.strip()
