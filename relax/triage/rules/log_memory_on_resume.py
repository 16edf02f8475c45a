"""Out of memory when the engine takes its memory back (colocated runs).

Either the trainer has not let go yet, which is order and not size, or the engine wants
more than there is after the trainer has.
"""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, place, seconds_between
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Compares the resume with the end of the trainer's offload."""
    lines = evidence.of("saver_memory")
    lines += [
        line
        for line in evidence.of("cuda_memory")
        if "resume" in line.text and line not in lines
    ]
    if not lines:
        return None
    first = lines[0]
    if (follows := fallout(evidence, first)) is not None:
        return follows
    at = evidence.lines.index(first)
    later = next(
        (line for line in evidence.lines[at:] if line.mark == "trainer_offloaded"), None
    )
    gap = None if later is None else seconds_between(first, later)
    overlaps = gap is not None and gap <= _SOON
    numbers = {"lines": float(len(lines))}
    if gap is not None:
        numbers["offloaded_after_seconds"] = gap
    summary = (
        f"resume overlaps with the trainer's offload, which ended {gap:.0f} s later"
        if overlaps
        else "out of memory when the engine took its memory back"
    )
    shown = [first, *evidence.of("resume_memory")[:1]]
    return Finding(
        status=Status.FAIL,
        summary=summary,
        numbers=numbers,
        where=place(first),
        evidence=evidence.shown([*shown, later] if overlaps and later else shown),
        causes=(_ORDER, _SIZE) if overlaps else (_SIZE, _ORDER),
        next_command=evidence.look_command(first),
    )


_SOON = 30.0
_ORDER = Cause(
    text="the other side had not released its memory yet: order, not size",
    confidence="medium",
    confirm="wait for the offload before resuming; free memory some seconds later",
)
_SIZE = Cause(
    text="the engine wants more than the trainer leaves",
    confidence="medium",
    confirm="a lower --sglang-mem-fraction-static; memory after the offload",
)

RULE = LogRule(
    id="memory_on_resume",
    section="runtime",
    title="the engine gets its memory back",
    marks=("saver_memory", "cuda_memory", "resume_memory", "trainer_offloaded"),
    judge=judge,
    survivable=True,
)
