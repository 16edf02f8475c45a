"""Guide, SGLang crash 1: an illegal memory access in the engine's scheduler.

The traced line only waits for a kernel that was started earlier (``.tolist()``), so it
does not name the culprit. The guide's cause is string `stop` under agentic concurrency;
without it memory pressure and engine faults are as likely, and only candidates.
"""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, place, who_says
from relax.triage.log_rule import LogRule, fallout, stop_string_causes
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Finds the first access, and what speaks for the detokenizer."""
    lines = evidence.of("illegal_access")
    if not lines:
        return None
    first = lines[0]
    starved = evidence.of("detokenizer")
    before = evidence.first_failure
    if before is not None and before.mark not in ("illegal_access", "detokenizer"):
        return fallout(evidence, first)
    stops = stop_string_causes(evidence)
    likely = stops[0].confidence == "high" or bool(starved)
    causes = (*stops, _PRESSURE) if likely else (_PRESSURE, *stops)
    numbers = {"lines": float(evidence.count("illegal_access"))}
    beside = evidence.shown([first, *starved[:1], *evidence.of("sigquit")[:1]])
    ranks = who_says(lines)
    on = f" on {', '.join(ranks[:4])}" if ranks else ""
    return Finding(
        status=Status.FAIL,
        summary=f"illegal memory access{on}; later errors follow from it",
        numbers=numbers,
        where=place(first),
        evidence=beside,
        causes=(*causes, _BLOCKING),
        next_command=evidence.lint_command()
        if likely
        else evidence.look_command(first),
    )


_PRESSURE = Cause(
    text="memory pressure or a kernel of this engine version",
    confidence="medium",
    confirm="another --sglang-mem-fraction-static (0.7), another engine version",
)
_BLOCKING = Cause(
    text="the traced line waits for a kernel started earlier; it is not the culprit",
    confidence="high",
    confirm="run again with CUDA_LAUNCH_BLOCKING=1 for the true line",
)

RULE = LogRule(
    id="engine_illegal_access",
    section="SGLang 1",
    title="the engine makes no illegal memory access",
    marks=("illegal_access", "detokenizer", "sigquit", "stop_strings"),
    judge=judge,
    survivable=True,
)
