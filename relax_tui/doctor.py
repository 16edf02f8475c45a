"""What this machine and terminal can do, for a person and for a bug report."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from importlib import metadata

from relax.arguments.environment import runtime_dir, terminal_environment
from relax_tui.terminal import Capabilities

_PACKAGES = ("textual", "rich", "pyarrow", "numpy", "pydantic", "aiohttp")
_ENGINE = ("torch", "ray", "megatron.core", "transformers", "sglang")


def diagnose(capabilities: Capabilities) -> str:
    """One finding a line; nothing heavy is imported.

    Args:
        capabilities: Of the terminal.

    Returns:
        The text.
    """
    rows = [
        ("python", platform.python_version()),
        ("machine", f"{os.cpu_count()} cores, {platform.machine()}"),
        ("terminal", _terminal(capabilities)),
        ("tmux", _tmux(capabilities)),
        ("sockets", str(runtime_dir())),
        ("shared memory", _free("/dev/shm")),  # noqa: S108 - only its size is read
        ("this disk", _free(".")),
    ]
    rows += [(name, _version(name)) for name in _PACKAGES]
    rows += [(f"engine: {name}", _found(name)) for name in _ENGINE]
    return "".join(f"{name:<24} {value}\n" for name, value in rows)


def _terminal(capabilities: Capabilities) -> str:
    environment = terminal_environment()
    term = environment.get("TERM", "(unset)")
    colours = capabilities.look.colours.value
    plain = ", ASCII only" if capabilities.look.ascii_only else ""
    if capabilities.headless:
        return f"TERM={term}: no console, text only ({capabilities.headless})"
    return f"TERM={term}: {colours} colours{plain}"


def _tmux(capabilities: Capabilities) -> str:
    if capabilities.tmux:
        return "yes: the console survives a dropped connection"
    if shutil.which("tmux"):
        return "not inside; start it inside tmux and a dropped connection costs nothing"
    return "not installed; runs go on without it, the console has to be started again"


def _free(path: str) -> str:
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        return f"not readable: {error.strerror}"
    return f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.1f} GB"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "MISSING"


def _found(name: str) -> str:
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        return "not here (a console that only looks does not need it)"
    try:
        return metadata.version(name.replace(".", "-"))
    except metadata.PackageNotFoundError:
        return "found"
