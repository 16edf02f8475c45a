"""Where dumps lie: a path with ``{rollout_id}`` and ``{rank}``."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from relax.errors import ArgumentError

DumpKind: TypeAlias = Literal["rollout", "train"]

PLACEHOLDERS: Final[dict[DumpKind, tuple[str, ...]]] = {
    "rollout": ("rollout_id",),
    "train": ("rollout_id", "rank"),
}
"""What is filled in, by kind of dump."""


def as_template(path: Path) -> str:
    """A path as a template of itself: its own braces are no placeholders."""
    return str(path).replace("{", "{{").replace("}", "}}")


class TemplateFault(NamedTuple):
    """Why a template cannot be used.

    Attributes:
        problem: What would go wrong.
        fix: What to write instead.
    """

    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class DumpTemplate:
    """A path in which ``{rollout_id}``, and for train dumps ``{rank}``, are filled in.

    Attributes:
        text: The template, as the flag has it.
    """

    text: str

    def placeholders(self) -> tuple[str, ...]:
        """Names within braces, in order.

        Raises:
            ArgumentError: The braces do not match.
        """
        try:
            pieces = list(string.Formatter().parse(self.text))
        except ValueError as error:
            raise ArgumentError(
                f"its braces do not match ({error})",
                where=self.text,
                hint="write {{ and }} for braces that belong to the path",
            ) from error
        return tuple(field for _, field, _, _ in pieces if field is not None)

    @property
    def is_literal(self) -> bool:
        """Whether it is one file for every rollout."""
        return "rollout_id" not in self.placeholders()

    def unknown_placeholder(self, kind: DumpKind) -> TemplateFault | None:
        """The fault of a name that nothing fills in."""
        known = PLACEHOLDERS[kind]
        for name in self.placeholders():
            if name not in known:
                allowed = " and ".join(f"{{{name}}}" for name in known)
                return TemplateFault(f"nothing fills in {{{name}}}", f"use {allowed}")
        return None

    def fault(
        self, *, world_size: int, num_rollout: int | None, kind: DumpKind
    ) -> TemplateFault | None:
        """Why files could not be written by this template, or None.

        Args:
            world_size: Ranks that write a train dump.
            num_rollout: Rollouts of the run; None when it is not known.
            kind: Which dump.

        Raises:
            ArgumentError: The braces do not match.
        """
        unknown = self.unknown_placeholder(kind)
        if unknown is not None:
            return unknown
        found = self.placeholders()
        missing = []
        if "rollout_id" not in found and num_rollout != 1:
            missing.append("rollout_id")
        if kind == "train" and "rank" not in found and world_size > 1:
            missing.append("rank")
        if not missing:
            return None
        names = " and ".join(f"{{{name}}}" for name in missing)
        return TemplateFault(
            f"files would overwrite each other without {names}",
            f"write {self._with(missing)}",
        )

    def check(
        self, *, world_size: int, num_rollout: int | None, kind: DumpKind
    ) -> None:
        """Refuses a template whose files would overwrite each other.

        Raises:
            ArgumentError: Says what is missing, and gives the corrected template.
        """
        fault = self.fault(world_size=world_size, num_rollout=num_rollout, kind=kind)
        if fault is not None:
            raise ArgumentError(fault.problem, where=self.text, hint=fault.fix)

    def path(self, *, rollout_id: int | str, rank: int = 0) -> Path:
        """The file of one rollout, and of one rank.

        Args:
            rollout_id: Its number, or ``eval_3`` for an evaluation's dump.
            rank: Global rank, where the template has one.

        Raises:
            ArgumentError: The template cannot be filled in.
        """
        try:
            return Path(self.text.format(rollout_id=rollout_id, rank=rank))
        except (ValueError, LookupError, AttributeError) as error:
            raise ArgumentError(
                f"the path cannot be filled in for rollout {rollout_id}: {error}",
                where=self.text,
                hint="use {rollout_id} and, for train dumps, {rank}",
            ) from error

    def _with(self, missing: list[str]) -> str:
        """The template with placeholders put behind the name's stem."""
        path = Path(self.text)
        added = "".join(f"_{{{name}}}" for name in missing)
        return str(path.with_name(f"{path.stem}{added}{path.suffix}"))
