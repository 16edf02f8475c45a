"""The only place that reads or sets environment variables.

What a library wants to find in its environment is set once, by the parent, in the
child's ``env_vars``; what is recorded is an allow-list; secrets are used only to find
and remove them elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from relax.arguments.redaction import Redactor, is_secret_name

_environ = os.environ  # noqa: TID251 - this module is where the environment is read

RECORDED_NAMES: Final = frozenset(
    {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES",
        "CUBLAS_WORKSPACE_CONFIG",
        "CONDA_DEFAULT_ENV",
        "GLOO_SOCKET_IFNAME",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOG_LEVEL",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "SGLANG_USE_CPU_ENGINE",
        "TOKENIZERS_PARALLELISM",
        "TRANSFORMERS_OFFLINE",
        "VIRTUAL_ENV",
    }
)
"""Variables that decide what a run computes, recorded by name."""

RECORDED_PREFIXES: Final = ("NCCL_", "NVTE_", "TORCH_", "SGLANG_", "SLURM_JOB_", "UCX_")
"""Families of such variables; a member whose name says secret is left out."""

TOLD_PREFIXES: Final = ("NCCL_", "NVTE_", "GLOO_", "UCX_", "PYTORCH_", "CUBLAS_")
"""Families of variables that actors on all nodes get as the driver has them."""

TERMINAL_NAMES: Final = (
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLORTERM",
    "COLORFGBG",
    "NO_COLOR",
    "FORCE_COLOR",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "SSH_CONNECTION",
    "SSH_TTY",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "COLUMNS",
    "LINES",
    "EDITOR",
    "VISUAL",
    "PAGER",
)
"""Variables that say what the terminal can do."""


def recorded_environment() -> dict[str, str]:
    """The variables of the allow-list, redacted, sorted by name."""
    redact = redactor()
    return {
        name: redact.text(value)
        for name, value in sorted(_environ.items())
        if (name in RECORDED_NAMES or name.startswith(RECORDED_PREFIXES))
        and not is_secret_name(name)
    }


def redactor() -> Redactor:
    """A redactor that knows the values of this process's secret variables."""
    secrets: set[str] = set()
    for name, value in _environ.items():
        if is_secret_name(name):
            secrets.add(value)
            continue
        # A password inside a URL is a secret on its own as well.
        secrets.update(re.findall(r"://[^/\s:@]*:([^/\s@]+)@", value))
    return Redactor.knowing(secrets)


def worker_environment(
    *, threads: int, has_gpu: bool, deterministic: bool = False
) -> dict[str, str]:
    """The ``env_vars`` of a Ray actor that computes.

    Args:
        threads: CPU threads of each numeric library; they decide bits on CPU.
        has_gpu: Whether the actor uses a GPU.
        deterministic: Ask the GPU libraries for the same bits each time.

    Returns:
        Names and values, to be handed to the child and recorded.
    """
    values = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "NUMEXPR_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        # Megatron overlaps tensor-parallel communication only with one work queue.
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    if not has_gpu:
        values["CUDA_VISIBLE_DEVICES"] = ""
    if deterministic:
        values["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        values["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0"
        values["NCCL_ALGO"] = "Ring"
    return values


def cluster_environment(*, threads: int, has_gpu: bool) -> dict[str, str]:
    """The ``env_vars`` of an actor in a cluster that was there before.

    Such actors inherit from whoever started their node. What decides bits, and how
    libraries reach the other nodes, is the driver's on all of them.

    Args:
        threads: CPU threads of each numeric library.
        has_gpu: Whether the actor uses a GPU.
    """
    told = {
        name: value
        for name, value in _environ.items()
        if name.startswith(TOLD_PREFIXES) and not is_secret_name(name)
    }
    values = worker_environment(threads=threads, has_gpu=has_gpu)
    return {**told, **values, "PYTHONPATH": child_python_path()}


def prepare_driver(*, threads: int, has_gpu: bool) -> None:
    """Sets, in this process, what Ray and the numeric libraries read when imported.

    Called once by an entry point before it imports them. A local Ray's workers inherit
    it, and can then be started before anybody asks for them: a ``runtime_env`` of an
    actor's own would cost a new process and an agent's answer each. Repeated lines stay
    visible (Ray would fold them).
    """
    values = worker_environment(threads=threads, has_gpu=has_gpu)
    _environ.update(values)
    _environ["PYTHONPATH"] = child_python_path()
    _environ["RAY_DEDUP_LOGS"] = "0"
    # Nobody asked this run to report itself anywhere.
    _environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def child_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's whole environment with ``changes``, for a child process."""
    return {**_environ, **(changes or {})}


def child_python_path() -> str:
    """A ``PYTHONPATH`` with which a child of another folder finds this relax."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = _environ.get("PYTHONPATH", "")
    return f"{root}{os.pathsep}{inherited}" if inherited else root


def has_gpu() -> bool:
    """Whether this host has an NVIDIA driver; asked without importing torch."""
    return Path("/dev/nvidiactl").exists()


def terminal_environment() -> dict[str, str]:
    """The set ones of `TERMINAL_NAMES`; an empty variable counts as set."""
    return {name: _environ[name] for name in TERMINAL_NAMES if name in _environ}


def home() -> Path:
    """The user's home folder."""
    return Path.home()


def _base_folder(variable: str, default: Path) -> Path:
    # The XDG rule: a relative path in one of these variables is to be ignored.
    value = _environ.get(variable, "")
    return Path(value) if value and Path(value).is_absolute() else default


def state_home() -> Path:
    """``$XDG_STATE_HOME``, else ``~/.local/state``."""
    return _base_folder("XDG_STATE_HOME", home() / ".local" / "state")


def config_home() -> Path:
    """``$XDG_CONFIG_HOME``, else ``~/.config``."""
    return _base_folder("XDG_CONFIG_HOME", home() / ".config")


def cache_home() -> Path:
    """``$XDG_CACHE_HOME``, else ``~/.cache``."""
    return _base_folder("XDG_CACHE_HOME", home() / ".cache")


def runtime_dir() -> Path:
    """Folder for control sockets: ``$XDG_RUNTIME_DIR/relax``, else ``/tmp/relax-UID``.

    It is not created here, and whoever creates it checks that it is ours alone.
    """
    value = _environ.get("XDG_RUNTIME_DIR", "")
    if value and Path(value).is_absolute():
        return Path(value) / "relax"
    return Path("/tmp") / f"relax-{os.getuid()}"  # noqa: S108 - owner and mode checked


def interpreter() -> Path:
    """The running Python, as it was started (links to virtual environments kept)."""
    return Path(sys.executable)
