"""Guide, check 1: memory that was released comes back empty.

After a resume the weights must be sent again and the prefix cache be flushed, before
anything is generated; and a resume that was skipped has given nothing back.
"""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, LogLine, place
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Walks through releases, resumes and pushes in order."""
    steps = evidence.of(
        "release_memory", "resume_memory", "weights_pushed", "resume_skipped"
    )
    if not any(line.mark == "release_memory" for line in steps):
        return None
    skipped = [line for line in steps if line.mark == "resume_skipped"]
    if skipped:
        return _finding(evidence, skipped[0], "a resume was skipped", _SKIPPED)
    resumed: LogLine | None = None
    released = False
    for line in steps:
        if line.mark == "release_memory":
            if resumed is not None:
                # Released again: something ran in between, on what it had then.
                return _finding(evidence, resumed, _NO_PUSH, _EMPTY)
            released = True
        elif line.mark == "resume_memory":
            resumed = line if released else None
            released = False
        else:
            resumed = None
    if resumed is not None and evidence.lines[-1].rollout_id > resumed.rollout_id:
        return _finding(evidence, resumed, _NO_PUSH, _EMPTY)
    return None


def _finding(
    evidence: LogEvidence, line: LogLine, summary: str, cause: Cause
) -> Finding:
    return Finding(
        status=Status.FAIL,
        summary=summary,
        numbers={},
        where=place(line),
        evidence=evidence.shown([line]),
        causes=(cause,),
        next_command=evidence.look_command(line),
    )


_NO_PUSH = "generation after a resume without a weight update in between"
_EMPTY = Cause(
    text="resume gives memory back empty: send the weights, then flush the cache",
    confidence="high",
    confirm="the order release, resume weights, update, resume cache, flush, generate",
)
_SKIPPED = Cause(
    text="the second resume found the pause flag cleared: its memory was never mapped",
    confidence="high",
    confirm="resume both tags in one call",
)

RULE = LogRule(
    id="resume_order",
    section="1",
    title="released memory is filled before it is used",
    marks=("release_memory", "resume_memory", "weights_pushed", "resume_skipped"),
    judge=judge,
)
