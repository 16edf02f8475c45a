"""What a rule is, and how it words its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relax.triage.evidence import RolloutEvidence
from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict

Stage: TypeAlias = Literal["update_weights", "generate", "log_probs", "train"]
Cost: TypeAlias = Literal["metrics", "samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One check of the debugging guide.

    Attributes:
        id: Stable name, as in events, stop conditions and help.
        section: Section of the debugging guide.
        title: What holds when it passes, for lists.
        needs: Metrics and columns it reads.
        cost: ``metrics`` (numbers only) or ``samples`` (reads per-token columns).
        stage: The stage after which its data are complete.
        judge: The check itself, pure.
    """

    id: str
    section: str
    title: str
    needs: tuple[str, ...]
    cost: Cost
    stage: Stage
    judge: Callable[[RolloutEvidence], Finding]

    def check(self, evidence: RolloutEvidence) -> Verdict:
        """Judges one rollout."""
        finding = self.judge(evidence)
        where = finding.where or evidence.at(None)
        command = finding.next_command
        if command is None and finding.status in _WORTH_SHOWING:
            command = evidence.show_command(where)
        return Verdict(
            rule=self.id,
            section=self.section,
            status=finding.status,
            summary=finding.summary,
            where=where,
            numbers=finding.numbers,
            evidence=finding.evidence,
            causes=finding.causes,
            next_command=command,
        )


_WORTH_SHOWING = frozenset({Status.FAIL, Status.WARN, Status.NON_FINITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found; `Rule.check` adds its id, section and place."""

    status: Status
    summary: str
    numbers: Mapping[str, float]
    where: Place | None = None
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    next_command: str | None = None


def not_run(missing: str, *, get_it: str, command: str | None = None) -> Finding:
    """The finding of a rule whose data are missing.

    Args:
        missing: What is missing, as a noun phrase.
        get_it: How to have it next time.
        command: A command line that gives it.
    """
    return Finding(
        status=Status.NOT_RUN,
        summary=f"no {missing}; {get_it}",
        numbers={},
        next_command=command,
    )


def vacuous(why: str, numbers: Mapping[str, float] | None = None) -> Finding:
    """The finding of a rule that could not have failed."""
    return Finding(status=Status.VACUOUS, summary=why, numbers=numbers or {})


def non_finite(evidence: RolloutEvidence, *columns: str) -> Finding | None:
    """The finding for NaN or infinities in per-token columns; None without any."""
    count = evidence.nonfinite(*columns)
    if not count:
        return None
    names = " and ".join(columns)
    return Finding(
        status=Status.NON_FINITE,
        summary=f"{count} non-finite values in {names}",
        numbers={"nonfinite": count},
        where=evidence.first_nonfinite(*columns),
        causes=(
            Cause(
                text="weights or activations overflowed, or a checkpoint holds NaN",
                confidence="medium",
                confirm="grad_norm of the step before, and the weights' own maxima",
            ),
        ),
    )
