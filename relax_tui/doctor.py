"""What this machine and terminal can do, for a person and for a bug report."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from dataclasses import asdict
from importlib import metadata
from typing import Any

from relax.arguments.environment import runtime_dir, terminal_environment
from relax_tui.machine_checks import known_troubles, memory_limit
from relax_tui.survival import survives_logout
from relax_tui.terminal import Capabilities

_PACKAGES = ("textual", "rich", "pyarrow", "numpy", "pydantic", "aiohttp")
_JUDGED = ("sglang", "kernels", "megatron-core", "ray", "transformer-engine", "torch")
_ENGINE = ("torch", "ray", "megatron.core", "transformers", "sglang")


def diagnose(capabilities: Capabilities) -> str:
    """One finding a line; nothing heavy is imported.

    Args:
        capabilities: Of the terminal.

    Returns:
        The text.
    """
    rows = findings(capabilities)
    troubles = known_troubles(installed())
    lines = [f"{name:<24} {value}\n" for name, value in rows]
    for trouble in troubles:
        lines.append(f"trouble: {trouble.what}\n")
        lines.append(f"  {trouble.why}; fix: {trouble.fix}\n")
    return "".join(lines)


def document(capabilities: Capabilities) -> dict[str, Any]:
    """The same as plain data, for ``--json``."""
    return {
        "findings": dict(findings(capabilities)),
        "troubles": [asdict(trouble) for trouble in known_troubles(installed())],
        "logout": asdict(survives_logout()),
    }


def findings(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Name and value, one a row.

    Args:
        capabilities: Of the terminal.
    """
    limit = memory_limit()
    rows = [
        ("python", platform.python_version()),
        ("machine", f"{os.cpu_count()} cores, {platform.machine()}"),
        ("terminal", _terminal(capabilities)),
        ("tmux", _tmux(capabilities)),
        ("sockets", str(runtime_dir())),
        ("shared memory", _free("/dev/shm")),  # noqa: S108 - only its size is read
        ("this disk", _free(".")),
        ("memory limit", "none" if limit is None else f"{limit / 1e9:.1f} GB"),
        ("after logout", _logout()),
    ]
    rows += [(name, _version(name)) for name in _PACKAGES]
    rows += [(f"engine: {name}", _found(name)) for name in _ENGINE]
    return rows


def installed() -> dict[str, str]:
    """Versions of the packages that known troubles are about."""
    found = {}
    for name in _JUDGED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _logout() -> str:
    survival = survives_logout()
    return f"{survival.why}; {survival.remedy}" if survival.remedy else survival.why


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
