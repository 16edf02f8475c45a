"""A placement group that cannot be placed: the start hangs without a word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from relax.triage.log_evidence import LogEvidence, place, seconds_between
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_DEMAND = re.compile(r"\{[^{}]*\}(?: ?\* ?\d+)?")
_PATIENCE = 60.0
_NONE: Mapping[str, float] = MappingProxyType({})


def judge(evidence: LogEvidence) -> Finding | None:
    """A demand that is repeated over more than a minute is not a node joining."""
    lines = evidence.of("placement")
    if not lines:
        return None
    waited = seconds_between(lines[0], lines[-1])
    demand = next((m[0] for line in lines if (m := _DEMAND.search(line.text))), "")
    stuck = len(lines) > 1 and (waited is None or waited >= _PATIENCE)
    told = f" {demand}" if demand else ""
    return Finding(
        status=Status.FAIL if stuck else Status.WARN,
        summary=f"a demand{told} is not placed"
        + ("" if waited is None else f" for {waited:.0f} s"),
        numbers=_NONE if waited is None else {"seconds": waited},
        where=place(lines[0]),
        evidence=evidence.shown(lines),
        causes=(_BUNDLE, _TAKEN),
        next_command="ray status",
    )


_BUNDLE = Cause(
    text="a bundle is larger than any one node, though their sum would do",
    confidence="medium",
    confirm="ray status: the demand against the largest node, CPUs too",
)
_TAKEN = Cause(
    text="helper actors already hold the CPUs or GPUs",
    confidence="medium",
    confirm="ray list actors; --num-cpus of the nodes",
)

RULE = LogRule(
    id="placement_pending",
    section="runtime",
    title="what was asked of Ray was placed",
    marks=("placement",),
    judge=judge,
)
