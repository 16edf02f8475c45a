"""Settings as rules ask for them, and what a known-bad combination is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from relax.triage.lint.given import Given
from relax.triage.verdict import Status

_SHORT: Final = frozenset({"temperature", "top_p", "top_k", "skip_special_tokens"})
"""Names that count wherever they stand in a tree of settings."""


class Settings:
    """Settings by name, with where each was made.

    Args:
        given: In order; of one name the last counts.
    """

    def __init__(self, given: Iterable[Given]) -> None:
        self._given: dict[str, Given] = {}
        for setting in given:
            self._given[setting.name] = setting
            short = setting.name.rpartition(".")[2]
            if short != setting.name and short in _SHORT:
                self._given.setdefault(short, setting)

    def get(self, name: str) -> Any:
        """A value; None when it is not set, or a shell would fill it in."""
        setting = self._given.get(name)
        value = None if setting is None else setting.value
        return None if isinstance(value, str) and value.startswith("$") else value

    def number(self, name: str) -> float | None:
        """A number; None when it is not set to one."""
        value = self.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.get(name) not in (None, False, 0, "", "false", "False")

    def has(self, name: str) -> bool:
        """Whether it is set at all."""
        return name in self._given

    def origin(self, *names: str) -> tuple[str, ...]:
        """Where these stand, one text each."""
        return tuple(
            f"{self._given[n].origin}: {n} = {self._given[n].value}"
            for n in names
            if n in self._given
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a combination.

    Attributes:
        names: The settings it is about.
    """

    status: Status
    summary: str
    why: str
    fix: str
    names: tuple[str, ...]
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Combination:
    """A combination to look for."""

    id: str
    section: str
    title: str
    find: Callable[[Settings], Problem | None]


def flag(name: str) -> str:
    """A setting's name as a flag."""
    return "--" + name.replace("_", "-")


def pairs(
    *names: str, status: Status, why: str, fix: str
) -> Callable[[Settings], Problem | None]:
    """A combination of switches that must not all be on.

    Args:
        names: The switches.
        status: How bad it is.
        why: What goes wrong.
        fix: What to do.
    """

    def find(settings: Settings) -> Problem | None:
        if not all(settings.on(name) for name in names):
            return None
        shown = " and ".join(map(flag, names))
        return Problem(
            status=status, summary=f"{shown} together", why=why, fix=fix, names=names
        )

    return find
