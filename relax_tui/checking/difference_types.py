"""What a comparison found: plain data, also as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from relax.measure.reduction import decode_number, encode_number
from relax_tui.checking.aligned import AlignedSample


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first place at which one sample differs.

    Attributes:
        what: ``tokens`` or the column's name.
        sample: Its index in A.
        other: Its index in B.
        position: In the response.
    """

    what: str
    sample: int
    other: int
    position: int
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class ColumnDifference:
    """A per-token column over the samples whose tokens are equal.

    Attributes:
        tokens: Compared.
        unequal: Not equal to the bit; NaN equals NaN.
        max_abs: Largest difference of finite values; None without any.
        first: Where it first differs; None if nowhere.
    """

    name: str
    tokens: int
    unequal: int
    max_abs: float | None
    first: Divergence | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What differs between A and B.

    Attributes:
        a, b: What was compared, in words.
        rollouts: Of A and of B.
        paired: Samples that are in both: same prompt, in the same place of its group.
        same_tokens: Of those, how many have equal tokens.
        only_a, only_b: Samples without a partner.
        first_tokens: The first place at which paired tokens differ.
        columns: Per-token columns over samples with equal tokens.
        rewards_differ: Paired samples whose rewards differ.
        numbers: Name to A's and B's number, where they differ by more than 0.1 %.
        arguments: Name to A's and B's value with origin, where they differ.
        samples: Those that differ, token beside token; as many as were asked for.
    """

    a: str
    b: str
    rollouts: tuple[int, int]
    paired: int = 0
    same_tokens: int = 0
    only_a: int = 0
    only_b: int = 0
    first_tokens: Divergence | None = None
    columns: tuple[ColumnDifference, ...] = ()
    rewards_differ: int = 0
    numbers: Mapping[str, tuple[float | None, float | None]] = field(
        default_factory=dict
    )
    arguments: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    samples: tuple[AlignedSample, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(
            self.only_a
            or self.only_b
            or self.same_tokens < self.paired
            or self.rewards_differ
            or self.numbers
            or self.arguments
            or any(column.unequal for column in self.columns)
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data; non-finite numbers become texts."""
        plain = asdict(self)
        plain["numbers"] = {
            name: [None if n is None else encode_number(n) for n in pair]
            for name, pair in self.numbers.items()
        }
        for column in plain["columns"]:
            _encode_place(column["first"])
        _encode_place(plain["first_tokens"])
        plain["samples"] = [sample.to_json() for sample in self.samples]
        return {**plain, "differs": self.differs}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Difference:
        """The inverse of `to_json`."""
        told = {name: value for name, value in plain.items() if name != "differs"}
        told["rollouts"] = tuple(told["rollouts"])
        told["notes"] = tuple(told["notes"])
        told["first_tokens"] = _decode_place(told["first_tokens"])
        told["columns"] = tuple(
            ColumnDifference(**{**column, "first": _decode_place(column["first"])})
            for column in told["columns"]
        )
        told["numbers"] = {
            name: tuple(None if n is None else decode_number(n) for n in pair)
            for name, pair in told["numbers"].items()
        }
        told["arguments"] = {n: tuple(pair) for n, pair in told["arguments"].items()}
        told["samples"] = tuple(map(AlignedSample.from_json, told["samples"]))
        return cls(**told)


def _encode_place(place: dict[str, Any] | None) -> None:
    if place is not None:
        place["a"], place["b"] = encode_number(place["a"]), encode_number(place["b"])


def _decode_place(plain: Mapping[str, Any] | None) -> Divergence | None:
    if plain is None:
        return None
    values = {name: decode_number(plain[name]) for name in ("a", "b")}
    return Divergence(**{**plain, **values})
