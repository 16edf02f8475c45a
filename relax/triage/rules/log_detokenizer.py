"""Guide, SGLang crash 1: the detokenizer no longer answers its 20 s heartbeat.

A heartbeat that stands still is a stalled process, one that moves on was only slow.
"""

from __future__ import annotations

import re

from relax.triage.log_evidence import LogEvidence, LogLine, place
from relax.triage.log_rule import LogRule, fallout, stop_string_causes
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_HEARTBEAT = re.compile(r"last_heartbeat(?: time)?[:=]? *(\d[\d:.]*\d)")


def judge(evidence: LogEvidence) -> Finding | None:
    """Tells a stalled detokenizer from a slow one."""
    lines = evidence.of("detokenizer")
    if not lines:
        return None
    if (follows := fallout(evidence, lines[0])) is not None:
        return follows
    beats = list(dict.fromkeys(filter(None, map(_heartbeat, lines))))
    count = evidence.count("detokenizer")
    numbers = {"lines": float(count), "heartbeats": float(len(beats))}
    if len(beats) == 1 and count > 1:
        status = Status.FAIL
        summary = f"detokenizer stalled since {beats[0]}: frozen, not slow"
    elif len(beats) > 1:
        status = Status.WARN
        summary = f"detokenizer slow {count} times; its heartbeat moves on"
    else:
        status = Status.WARN
        summary = f"detokenizer silent for 20 s, {count} time(s)"
    return Finding(
        status=status,
        summary=summary,
        numbers=numbers,
        where=place(lines[0]),
        evidence=evidence.shown([lines[0], lines[-1]] if count > 1 else lines),
        causes=(*stop_string_causes(evidence), _ENGINE),
        next_command=evidence.lint_command()
        if evidence.stop_strings or evidence.count("stop_strings")
        else evidence.look_command(lines[0]),
    )


def _heartbeat(line: LogLine) -> str:
    match = _HEARTBEAT.search(line.text)
    return "" if match is None else match[1]


_ENGINE = Cause(
    text="the engine itself: a stopped process, its host cache, DP attention",
    confidence="medium",
    confirm="py-spy dump of the detokenizer process; its state in ps (T, D)",
)

RULE = LogRule(
    id="engine_detokenizer",
    section="SGLang 1",
    title="the detokenizer keeps its heartbeat",
    marks=("detokenizer", "stop_strings"),
    judge=judge,
    survivable=True,
)
