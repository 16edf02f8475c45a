"""A weight update failed in the engine; HTTP 200 of earlier buckets is no success."""

from __future__ import annotations

import re

from relax.triage.log_evidence import LogEvidence, place
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_NAME = re.compile(r"Unknown parameter name:? *(\S+)")


def judge(evidence: LogEvidence) -> Finding | None:
    """Tells an unknown name from a wrong shape."""
    lines = evidence.of("update_failed")
    if not lines:
        return None
    first = lines[0]
    if (follows := fallout(evidence, first)) is not None:
        return follows
    at = evidence.lines.index(first)
    pushed = sum(line.mark == "weights_pushed" for line in evidence.lines[:at])
    name = _NAME.search(first.text)
    if name is not None:
        summary = f"the converter does not know {name[1]}"
        bridge = evidence.arguments.get("megatron_to_hf_mode") == "bridge"
        causes = (_TABLE,) if bridge else (_NOT_SUPPORTED, _TABLE)
    else:
        summary = f"weight push failed on {first.who} after {pushed} accepted buckets"
        causes = (_LAYOUT,)
    return Finding(
        status=Status.FAIL,
        summary=summary,
        numbers={"buckets_before": float(pushed)},
        where=place(first),
        evidence=evidence.shown(lines),
        causes=causes,
        next_command=evidence.look_command(first),
    )


_TABLE = Cause(
    text="a bridge-built model is converted by the raw tables, which know other names",
    confidence="high",
    confirm="--colocate, or conversion by the bridge in the disaggregated path too",
)
_NOT_SUPPORTED = Cause(
    text="the raw converter does not support this model",
    confidence="medium",
    confirm="--megatron-to-hf-mode bridge",
)
_LAYOUT = Cause(
    text="the parameter has another layout in the engine than in the checkpoint:"
    " post-processing after loading changed its shape",
    confidence="medium",
    confirm="its shape in the engine, against the checkpoint's",
)

RULE = LogRule(
    id="weight_push_failed",
    section="1",
    title="weight updates succeed",
    marks=("update_failed", "weights_pushed"),
    judge=judge,
)
