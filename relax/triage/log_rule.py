"""What a rule over logs is; it says the same verdicts as the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from relax.triage.log_evidence import LogEvidence, LogLine, place, seconds_between
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Place, Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """One kind of failure that logs show.

    Attributes:
        id: Stable name.
        section: Section of the debugging guide; ``runtime`` for what it does not have.
        title: What holds when it passes, for lists.
        marks: Lines it reads (`relax.triage.log_signatures.MARKS`).
        judge: The check itself, pure.
        survivable: Whether a run that went on afterwards has got over it; it is a
            warning then.
    """

    id: str
    section: str
    title: str
    marks: tuple[str, ...]
    judge: Callable[[LogEvidence], Finding | None]
    survivable: bool = False

    def check(self, evidence: LogEvidence) -> Verdict:
        """Judges the logs."""
        finding = self.judge(evidence) or nothing_found(evidence)
        if self.survivable and finding.status is Status.FAIL:
            finding = self._if_survived(finding, evidence)
        return Verdict(
            rule=self.id,
            section=self.section,
            status=finding.status,
            summary=finding.summary,
            where=finding.where or Place(rollout_id=-1),
            numbers=finding.numbers,
            evidence=finding.evidence,
            causes=finding.causes,
            next_command=finding.next_command,
        )

    def _if_survived(self, finding: Finding, evidence: LogEvidence) -> Finding:
        lines = evidence.of(*self.marks)
        if not lines or not all(evidence.went_on(line) for line in lines):
            return finding
        return replace(
            finding,
            status=Status.WARN,
            summary=f"{finding.summary}; the run went on",
        )


def nothing_found(evidence: LogEvidence) -> Finding:
    """The finding of a rule none of whose lines is there."""
    if not evidence.num_lines:
        return Finding(
            status=Status.NOT_RUN,
            summary="no log; give the log file beside the run or dump",
            numbers={},
        )
    return Finding(
        status=Status.PASS,
        summary=f"no sign of it in {evidence.num_lines:,} lines",
        numbers={"lines": evidence.num_lines},
    )


def fallout(evidence: LogEvidence, line: LogLine) -> Finding | None:
    """The finding for a line that follows an earlier failure; None if it is the first.

    One process dies of something, the others die of its absence: only the first failure
    in time has a cause worth looking for.
    """
    root = evidence.first_failure
    if root is None or root is line or root.mark == line.mark:
        return None
    gap = seconds_between(root, line)
    later = "" if gap is None else f", {gap:.0f} s later"
    return Finding(
        status=Status.INFO,
        summary=f"follows {root.mark.replace('_', ' ')} on {root.who}{later}",
        numbers={} if gap is None else {"seconds_after": gap},
        where=place(line),
        evidence=evidence.shown([root, line]),
    )


def stop_string_causes(evidence: LogEvidence) -> tuple[Cause, ...]:
    """The guide's cause and remedy for a starved detokenizer, as far as it applies."""
    stops = evidence.stop_strings
    known = bool(stops) or evidence.count("stop_strings") > 0
    told = f" ({', '.join(map(repr, stops[:3]))})" if stops else ""
    if known:
        return (
            Cause(
                text=f"string `stop`{told} under many sessions starves the detokenizer:"
                " pass stop_token_ids, or stop at <|im_end|> and cut the text after",
                confidence="high",
                confirm=evidence.lint_command(),
            ),
        )
    return (
        Cause(
            text="string `stop` in an agent's requests, if there is any: stop_token_ids"
            " does without the detokenizer",
            confidence="low",
            confirm="relax-tui lint on the agent's source and its YAML",
        ),
    )
