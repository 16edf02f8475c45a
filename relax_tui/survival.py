"""Whether a run outlives the login that it was started from.

A driver is in a session of its own, so a closed terminal does not reach it. What can
still end it is systemd: with KillUserProcesses it kills everything in the login
session's scope, tmux and screen included, unless the processes were moved out of it.
"""

from __future__ import annotations

import getpass
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASK_SECONDS = 2.0
CONFIGURATION = (
    "/etc/systemd/logind.conf",
    "/etc/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/usr/lib/systemd/logind.conf.d",
)
_SETTING = re.compile(r"^\s*KillUserProcesses\s*=\s*(\w+)", re.MULTILINE)
_SESSION_SCOPE = re.compile(r"/session-[^/]+\.scope")


@dataclass(frozen=True, kw_only=True)
class Survival:
    """What a logout does to a run started here.

    Attributes:
        dies: True, False, or None when it cannot be told.
        why: One phrase.
        remedy: A command line that helps; '' when none is needed.
    """

    dies: bool | None
    why: str
    remedy: str = ""


def survives_logout(
    *, cgroup: str | None = None, kills: bool | None = None, lingers: bool | None = None
) -> Survival:
    """Judges this process's place.

    Args:
        cgroup: Content of /proc/self/cgroup; None to read it.
        kills: Whether logind kills; None to ask it.
        lingers: Whether the user lingers; None to look.
    """
    place = _read("/proc/self/cgroup") if cgroup is None else cgroup
    if _SESSION_SCOPE.search(place) is None:
        if "/user@" in place:
            return _in_user_manager(_lingers() if lingers is None else lingers)
        return Survival(dies=False, why="not in a login session: logout ends nothing")
    setting = _asked() if kills is None else kills
    if setting is None:
        return Survival(
            dies=None,
            why="in a login session; whether systemd kills at logout is not known",
            remedy=_MOVE_OUT,
        )
    if not setting:
        return Survival(dies=False, why="KillUserProcesses is off: runs go on")
    return Survival(
        dies=True,
        why="KillUserProcesses is on: logout ends runs started here, tmux too",
        remedy=_MOVE_OUT,
    )


def _in_user_manager(lingers: bool) -> Survival:  # noqa: FBT001 - one private caller
    if lingers:
        return Survival(dies=False, why="in a scope of the user's own, and it lingers")
    return Survival(
        dies=True,
        why="in a scope of the user's own, which ends with the last session",
        remedy="loginctl enable-linger",
    )


_MOVE_OUT = "loginctl enable-linger && systemd-run --user --scope tmux"


def _asked() -> bool | None:
    """What logind says of itself; else what its files say."""
    try:
        said = subprocess.run(
            [
                "busctl",
                "get-property",
                "org.freedesktop.login1",
                "/org/freedesktop/login1",
                "org.freedesktop.login1.Manager",
                "KillUserProcesses",
            ],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        ).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        said = []
    if said[-1:] in (["true"], ["false"]):
        return said[-1] == "true"
    return _configured()


def _configured() -> bool | None:
    found: bool | None = None
    for name in CONFIGURATION:
        path = Path(name)
        files = sorted(path.glob("*.conf")) if path.is_dir() else [path]
        for file in files:
            for word in _SETTING.findall(_read(str(file))):
                found = word.lower() in ("yes", "true", "1", "on")
    return found


def _lingers() -> bool:
    return (Path("/var/lib/systemd/linger") / getpass.getuser()).exists()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
