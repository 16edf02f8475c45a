"""The command line and environment of a server's process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import relax
from relax.arguments.environment import cache_home, child_environment, interpreter
from relax.backends.sglang.cpu import CPU_ARGUMENTS, cpu_environment

INSIDE: Final = "relax.backends.sglang.inside.call"
"""What relax runs in the server's own processes."""

CONTEXT_RESERVE: Final = 16
_OWNED: Final = frozenset({"model_path", "host", "port"})
"""Arguments that relax sets itself."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a server is started with.

    Attributes:
        python: The interpreter that has SGLang.
        model: Checkpoint folder.
        context_length: Longest prompt and response together; None: the model's.
        arguments: SGLang's own, by field name of its ServerArgs.
        has_gpu: Whether it runs on a GPU.
        threads: CPU threads of the numeric libraries.
        seed: Of its own random numbers.
    """

    python: Path
    model: Path
    context_length: int | None
    arguments: Mapping[str, Any]
    has_gpu: bool
    threads: int
    seed: int


def command_line(settings: ServerSettings, *, port: int) -> list[str]:
    """The server's command.

    Args:
        settings: What it is started with.
        port: Where it listens, on the loopback interface.

    Returns:
        Words, the interpreter first.
    """
    words = [str(settings.python), "-P", "-m", "sglang.launch_server"]
    for name, value in server_arguments(settings, port=port).items():
        words += _words(f"--{name.replace('_', '-')}", value)
    return words


def server_arguments(settings: ServerSettings, *, port: int) -> dict[str, Any]:
    """SGLang's arguments: ours, those of a CPU, and the user's over both."""
    ours: dict[str, Any] = {
        "model_path": str(settings.model),
        "host": "127.0.0.1",
        "port": port,
        "random_seed": settings.seed,
        "custom_weight_loader": [INSIDE],
        # Its own progress bars and access log would fill our disk.
        "log_level_http": "warning",
    }
    if settings.context_length is not None:
        # SGLang keeps some tokens to itself: with these added, the engine can use the
        # whole context, and ends responses at its limit by itself.
        ours["context_length"] = settings.context_length + CONTEXT_RESERVE
    if not settings.has_gpu:
        ours.update(CPU_ARGUMENTS)
    theirs = {k: v for k, v in settings.arguments.items() if k not in _OWNED}
    if "custom_weight_loader" in theirs:
        theirs["custom_weight_loader"] = [INSIDE, *theirs["custom_weight_loader"]]
    return {**ours, **theirs}


def server_environment(settings: ServerSettings) -> dict[str, str]:
    """The server's whole environment."""
    threads = str(settings.threads)
    changes = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1",
        # A server that was told about another cluster's ranks would join them.
        "RANK": "",
        "WORLD_SIZE": "",
    }
    if settings.python != interpreter():
        changes["PYTHONPATH"] = str(_door())
    if not settings.has_gpu:
        changes |= cpu_environment(settings.python)
    whole = child_environment(changes)
    return {name: value for name, value in whole.items() if value or name in KEPT_EMPTY}


KEPT_EMPTY: Final = frozenset({"CUDA_VISIBLE_DEVICES"})


def _door() -> Path:
    """A folder with this package and nothing else, for the server's import path.

    Where relax is installed beside other packages, their folder must not come before
    the server's own: it holds another torch.
    """
    package = Path(relax.__file__).resolve().parent
    folder = (
        cache_home()
        / "relax"
        / "import"
        / hashlib.sha256(os.fsencode(package)).hexdigest()[:16]
    )
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "relax"
    if not link.is_symlink() or link.readlink() != package:
        fresh = folder / f".relax-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(package)
        fresh.replace(link)
    return folder


def _words(flag: str, value: Any) -> list[str]:
    if value is True:
        return [flag]
    if value is False or value is None:
        return []
    if isinstance(value, list | tuple):
        return [flag, *(str(part) for part in value)]
    if isinstance(value, dict):
        return [flag, json.dumps(value)]
    return [flag, str(value)]
