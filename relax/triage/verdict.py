"""What a rule says: status, numbers, evidence, causes and the next command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from relax.errors import RecordError
from relax.measure.reduction import decode_number, encode_number

SUMMARY_LENGTH = 100

Confidence: TypeAlias = Literal["high", "medium", "low"]


class Status(StrEnum):
    """Outcome of a check.

    VACUOUS: it could not have failed, by construction. NOT_RUN: data are missing.
    NON_FINITE: NaN or infinities stand where a number was to be judged.
    """

    FAIL = "FAIL"
    NON_FINITE = "NON_FINITE"
    WARN = "WARN"
    INFO = "INFO"
    NOT_RUN = "NOT_RUN"
    VACUOUS = "VACUOUS"
    PASS = "PASS"  # noqa: S105


# The order in which a person should read verdicts.
SEVERITY = {status: place for place, status in enumerate(Status)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a verdict's evidence is.

    Attributes:
        rollout_id: The rollout.
        sample_index: The sample, None when the whole rollout is meant.
        position: Position in its response, None when the whole sample is meant.
    """

    rollout_id: int
    sample_index: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        """The place in short: ``r37 s12 t5``; ``start`` before rollout 0."""
        parts = ["start" if self.rollout_id < 0 else f"r{self.rollout_id}"]
        if self.sample_index is not None:
            parts.append(f"s{self.sample_index}")
        if self.position is not None:
            parts.append(f"t{self.position}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation behind a verdict.

    Attributes:
        text: The observation in one sentence.
        where: Its place, when it has one.
        file: The log it stands in; '' when it stands in none.
        line: Its line there, from 1; 0 when it stands in none.
    """

    text: str
    where: Place | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A likely cause.

    Attributes:
        text: The cause in one sentence.
        confidence: How well the evidence fits it.
        confirm: What to look at or run to confirm it.
    """

    text: str
    confidence: Confidence
    confirm: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one rule on one rollout.

    Attributes:
        rule: Id of the rule.
        section: Section of the debugging guide it carries out.
        status: The outcome.
        summary: One line of at most 100 characters; a longer one is cut.
        where: The place to look at first.
        numbers: What was measured, and the thresholds it was held against.
        evidence: Observations, the strongest first.
        causes: Likely causes, the likeliest first.
        next_command: A command line to paste, or None.
    """

    rule: str
    section: str
    status: Status
    summary: str
    where: Place
    numbers: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    next_command: str | None = None

    def __post_init__(self) -> None:
        if len(self.summary) > SUMMARY_LENGTH:
            cut = self.summary[: SUMMARY_LENGTH - 1] + "…"
            object.__setattr__(self, "summary", cut)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain JSON values; non-finite numbers become strings."""
        plain = asdict(self)
        plain["status"] = self.status.value
        plain["numbers"] = {
            name: encode_number(number) for name, number in self.numbers.items()
        }
        plain["evidence"] = list(plain["evidence"])
        plain["causes"] = list(plain["causes"])
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Verdict:
        """The inverse of `to_json`.

        Raises:
            RecordError: A field is missing or has a value that no verdict has.
        """
        try:
            return cls(
                rule=plain["rule"],
                section=plain["section"],
                status=Status(plain["status"]),
                summary=plain["summary"],
                where=Place(**plain["where"]),
                numbers={
                    name: decode_number(number)
                    for name, number in plain["numbers"].items()
                },
                evidence=tuple(map(_evidence_from_json, plain["evidence"])),
                causes=tuple(Cause(**cause) for cause in plain["causes"]),
                next_command=plain["next_command"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"not a verdict: {error!r}") from error


def _evidence_from_json(plain: Mapping[str, Any]) -> Evidence:
    where = plain["where"]
    return Evidence(
        text=plain["text"],
        where=None if where is None else Place(**where),
        file=plain.get("file", ""),
        line=plain.get("line", 0),
    )


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts in the order in which they should be read."""
    return sorted(verdicts, key=lambda verdict: SEVERITY[verdict.status])
