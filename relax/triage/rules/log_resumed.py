"""Weights came from a later iteration, and the rollouts count from 0 again.

Dumps of the first run are overwritten then; and KL against the reference is not 0 at
the first step, which is no fault.
"""

from __future__ import annotations

import re

from relax.triage.log_evidence import LogEvidence, place
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_ITERATION = re.compile(r"at iteration +(\d+)")


def judge(evidence: LogEvidence) -> Finding | None:
    """Compares the iteration that was loaded with the first rollout."""
    loaded = [
        (line, int(match[1]))
        for line in evidence.of("loaded_iteration")
        if (match := _ITERATION.search(line.text)) is not None
    ]
    if not loaded:
        return None
    line, iteration = max(loaded, key=lambda found: found[1])
    first = evidence.arguments.get("first_rollout_in_log")
    if not iteration or first is None:
        return None
    numbers = {"iteration": float(iteration), "first_rollout": float(first)}
    if first > 0:
        return Finding(
            status=Status.INFO,
            summary=f"resumed at iteration {iteration}, rollout {first}",
            numbers=numbers,
            where=place(line),
            evidence=evidence.shown([line]),
        )
    return Finding(
        status=Status.WARN,
        summary=f"weights of iteration {iteration}, but rollouts count from 0 again",
        numbers=numbers,
        where=place(line),
        evidence=evidence.shown([line]),
        causes=(
            Cause(
                text="the start rollout is not taken from the checkpoint: dumps are"
                " overwritten, and KL at the first step is not 0 here",
                confidence="high",
                confirm="--start-rollout-id, and the numbers of the dumps",
            ),
        ),
        next_command=evidence.look_command(line),
    )


RULE = LogRule(
    id="resumed_from_zero",
    section="3",
    title="a resumed run counts on",
    marks=("loaded_iteration",),
    judge=judge,
)
