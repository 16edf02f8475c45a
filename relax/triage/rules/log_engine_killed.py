"""SIGQUIT in the engine's parent: a child failed; why, stands before it."""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, place
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Looks for what came before."""
    lines = evidence.of("sigquit")
    if not lines:
        return None
    first = lines[0]
    if (follows := fallout(evidence, first)) is not None:
        return follows
    exception = evidence.before(first, "scheduler", "error")
    shown = [first] if exception is None else [exception, first]
    return Finding(
        status=Status.FAIL,
        summary="the engine was killed by SIGQUIT: a child process failed",
        numbers={"lines": float(evidence.count("sigquit"))},
        where=place(first),
        evidence=evidence.shown(shown),
        causes=(
            Cause(
                text="the exception before it"
                if exception is not None
                else "a child that died without a word (killed, out of memory)",
                confidence="high" if exception is not None else "medium",
                confirm=evidence.look_command(exception or first),
            ),
        ),
        next_command=evidence.look_command(exception or first),
    )


RULE = LogRule(
    id="engine_killed",
    section="SGLang 1",
    title="no engine was killed by a failed child",
    marks=("sigquit", "scheduler", "error"),
    judge=judge,
    survivable=True,
)
