"""Which samples a list shows, and in which order."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from relax.errors import ArgumentError
from relax_tui.sources.base import SampleRow

Measure = Callable[[SampleRow], float | None]
Holds = Callable[[SampleRow, Sequence[int]], bool]

NUMBERS: Final[Mapping[str, Measure]] = {
    "reward": lambda row: row.reward,
    "len": lambda row: row.length if row.length >= 0 else None,
    "lp-ref": lambda row: row.ref_max_abs,
    "lp-roll": lambda row: row.rollout_max_abs,
    "entropy": lambda row: row.entropy_mean,
    "group": lambda row: row.group,
    "index": lambda row: row.index,
    "nonfinite": lambda row: row.nonfinite,
}
"""What can be filtered and sorted by; None where a sample has none."""
WORDS: Final[Mapping[str, Callable[[SampleRow], Sequence[str]]]] = {
    "status": lambda row: (row.status,),
    "flag": lambda row: row.flags,
    "version": lambda row: row.weight_versions,
}
ORDERS: Final = (
    ("", "worst first", "what fails a check, then by flag, reward, difference"),
    *(
        (f"{sign}{name}", f"{name} {way}", f"samples without {name} last")
        for name in ("reward", "len", "lp-ref", "lp-roll", "entropy", "index")
        for sign, way in (("-", "falling"), ("+", "rising"))
    ),
)
"""Id, name and help of each order."""
FORMS: Final = (
    "reward < 0.5   status = truncated   flag = LOOP   verdict = fail   words"
)
SEARCHED: Final = 100_000
"""Characters of a text that a regular expression is tried on."""
_TERM: Final = re.compile(r"([a-z][a-z-]*)\s*(<=|>=|!=|=|<|>)\s*(\S+)")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def text_matcher(wanted: str) -> Callable[[str], bool]:
    """Whether a text holds what is wanted, in either case of letters.

    What is wanted is found as it stands, and also as the regular expression that it may
    be: ``12 + 7`` finds a sum, ``plus|minus`` finds either word.
    """
    plain = wanted.casefold()
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except re.error:
        return lambda text: plain in text.casefold()
    if re.escape(wanted).replace("\\ ", " ") == wanted:
        return lambda text: plain in text.casefold()
    return lambda text: (
        plain in text.casefold() or pattern.search(text[:SEARCHED]) is not None
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A filter and an order of samples.

    Attributes:
        wanted: What the person typed; '' shows all.
        order: A sign and a name of `NUMBERS`; '' for worst first.
    """

    wanted: str = ""
    order: str = ""

    @cached_property
    def _terms(self) -> tuple[Holds, ...]:
        found = [_term(*match.groups()) for match in _TERM.finditer(self.wanted)]
        words = " ".join(_TERM.sub(" ", self.wanted).split())
        return (*found, _with_text(words)) if words else tuple(found)

    @classmethod
    def parse(cls, wanted: str, *, order: str = "") -> Choice:
        """A choice out of what a person typed.

        Raises:
            ArgumentError: A condition names what samples do not have.
        """
        choice = cls(wanted=wanted.strip(), order=order)
        _ = choice._terms
        return choice

    def arrange(
        self, rows: Sequence[SampleRow], pointed: Sequence[int]
    ) -> list[SampleRow]:
        """The samples to show.

        Args:
            rows: All of them, in the order that holds when none was chosen.
            pointed: Indexes of those that fail a check.
        """
        kept = [
            row for row in rows if all(holds(row, pointed) for holds in self._terms)
        ]
        if not self.order:
            return kept
        measure, falls = NUMBERS[self.order[1:]], self.order[0] == "-"
        return sorted(kept, key=lambda row: _place(measure(row), falls=falls))

    @property
    def words(self) -> str:
        """What the list says of it; '' when it changes nothing."""
        parts = [f"only {self.wanted}"] if self.wanted else []
        named = {order: name for order, name, _ in ORDERS}
        parts += [f"by {named[self.order]}"] if self.order else []
        return ", ".join(parts)


ALL: Final = Choice()


def _place(value: float | None, *, falls: bool) -> tuple[int, float]:
    """Absent ones last; what is not a number before all others."""
    if value is None:
        return 2, 0.0
    if math.isnan(value):
        return 0, 0.0
    return 1, -value if falls else value


def _term(name: str, sign: str, value: str) -> Holds:
    name = {"length": "len", "grp": "group", "flags": "flag"}.get(name, name)
    if name == "verdict" and sign in ("=", "!="):
        if value.casefold() not in ("fail", "pass"):
            raise ArgumentError(f"verdict {value!r} is neither fail nor pass")
        fails = (value.casefold() == "fail") == (sign == "=")
        return lambda row, pointed: (row.index in pointed) == fails
    if name in WORDS and sign in ("=", "!="):
        texts, equal = WORDS[name], sign == "="
        wanted = value.casefold()
        return lambda row, _: equal == any(wanted == t.casefold() for t in texts(row))
    if name not in NUMBERS:
        known = ", ".join((*NUMBERS, *WORDS, "verdict"))
        raise ArgumentError(
            f"samples have no {name!r} to go by", hint=f"one of {known}"
        )
    try:
        bound = float(value)
    except ValueError as error:
        raise ArgumentError(f"{value!r} is not a number") from error
    measure, compare = NUMBERS[name], _COMPARE[sign]

    def holds(row: SampleRow, _: Sequence[int]) -> bool:
        number = measure(row)
        # What is absent is neither below nor above a bound.
        return number is not None and compare(number, bound)

    return holds


def _with_text(words: str) -> Holds:
    matches = text_matcher(words)
    return lambda row, _: any(map(matches, (row.response, row.prompt, row.label)))
