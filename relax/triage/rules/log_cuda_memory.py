"""CUDA out of memory in a trainer or engine."""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, place, who_says
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Finds the first process that ran out of memory."""
    lines = [line for line in evidence.of("cuda_memory") if "resume" not in line.text]
    if not lines:
        return None
    first = lines[0]
    if (follows := fallout(evidence, first)) is not None:
        return follows
    ranks = who_says(lines)
    return Finding(
        status=Status.FAIL,
        summary=f"CUDA out of memory, first on {first.who}",
        numbers={"lines": float(len(lines)), "ranks": float(len(ranks))},
        where=place(first),
        evidence=evidence.shown(lines),
        causes=(_TOKENS, _ENGINE),
        next_command=evidence.look_command(first),
    )


_TOKENS = Cause(
    text="the largest micro-batch does not fit",
    confidence="medium",
    confirm="a lower --max-tokens-per-gpu; more --context-parallel-size; recompute",
)
_ENGINE = Cause(
    text="the engine on the same GPU still holds its share",
    confidence="medium",
    confirm="--offload-rollout, and memory before the train step in the log",
)

RULE = LogRule(
    id="cuda_memory",
    section="runtime",
    title="no process runs out of GPU memory",
    marks=("cuda_memory",),
    judge=judge,
    survivable=True,
)
