"""How a settings field says what its flag is: help, bounds, derivation, path kind.

Each flag is written once, as a field of a settings group::

    micro_batch_size: int = field(
        default=1, metadata=flag("Samples of one micro-batch.", bounds=POSITIVE)
    )

Name, type and default come from the field itself; what a type cannot say is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

METADATA_KEY: Final = "relax.flag"


class ValueKind(Enum):
    """What the text of a value means."""

    PLAIN = "plain"
    """A value as it stands."""

    PATH = "path"
    """A file or folder; relative ones are made absolute."""

    TEMPLATE = "template"
    """A path with placeholders such as ``{rollout_id}``."""

    NAMED_PATHS = "named-paths"
    """Alternating names and paths."""

    REPEATED = "repeated"
    """One value each time the flag is given."""

    PASSTHROUGH = "passthrough"
    """Not a flag itself: holds what was set under another library's own names."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The closed or half-open interval a number must lie in.

    Attributes:
        low: Lowest value, or None.
        high: Highest value, or None.
        low_open: The lowest value itself is refused.
    """

    low: float | None = None
    high: float | None = None
    low_open: bool = False

    def admit(self, value: float) -> bool:
        """Whether ``value`` lies inside."""
        below = self.low is not None and (
            value < self.low or (self.low_open and value == self.low)
        )
        if below:
            return False
        return self.high is None or value <= self.high

    def __str__(self) -> str:
        low = ""
        if self.low is not None:
            low = f"{'>' if self.low_open else '>='} {self.low:g}"
        high = "" if self.high is None else f"<= {self.high:g}"
        return " and ".join(part for part in (low, high) if part)


POSITIVE: Final = Bounds(low=1)
NON_NEGATIVE: Final = Bounds(low=0)
ABOVE_ZERO: Final = Bounds(low=0, low_open=True)
FRACTION: Final = Bounds(low=0, high=1, low_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagMetadata:
    """What `flag` attaches to a field; see there."""

    help: str
    ours: bool = False
    bounds: Bounds | None = None
    derived: str = ""
    kind: ValueKind = ValueKind.PLAIN


def flag(
    help: str,
    *,
    ours: bool = False,
    bounds: Bounds | None = None,
    derived: str = "",
    kind: ValueKind = ValueKind.PLAIN,
) -> Mapping[str, FlagMetadata]:
    """Metadata of a settings field.

    Args:
        help: One sentence for ``--help``.
        ours: The flag does not exist upstream.
        bounds: Interval of a number.
        derived: How the value follows from others when it is not given; such a flag
            has no default of its own on the command line.
        kind: What the text means.

    Returns:
        The mapping for ``dataclasses.field(metadata=...)``.
    """
    metadata = FlagMetadata(
        help=help, ours=ours, bounds=bounds, derived=derived, kind=kind
    )
    return {METADATA_KEY: metadata}
