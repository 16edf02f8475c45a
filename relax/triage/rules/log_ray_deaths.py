"""Ray says that a worker, an actor or a node died.

Ray's own text lists possible causes without knowing. What it does know is told: killed
for memory, lost node. Else the memory limit of the container is the first suspect, and
one line of dmesg decides.
"""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, LogLine, place
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_JUST_BEFORE = 5.0
_DMESG = "dmesg -T | grep -iE 'out of memory|oom-kill|killed process' | tail"
_CGROUP = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.peak"


def judge(evidence: LogEvidence) -> Finding | None:
    """Takes the most telling of Ray's lines."""
    lines = evidence.of("ray_memory", "ray_node", "ray_death", "killed")
    if not lines:
        return None
    if (follows := fallout(evidence, lines[0])) is not None:
        return follows
    known = {line.mark: line for line in reversed(lines)}
    for mark, (summary, causes) in _TOLD.items():
        if mark in known:
            return _finding(evidence, known[mark], summary, causes, lines)
    exception = evidence.before(lines[0], "error", "scheduler")
    if exception is not None and _near(exception, lines[0]):
        own = (_OWN_ERROR, *_UNTOLD)
        return _finding(
            evidence, exception, "a worker died after an exception", own, lines
        )
    return _finding(
        evidence, lines[0], "Ray lost a worker without a reason given", _UNTOLD, lines
    )


def _near(first: LogLine, second: LogLine) -> bool:
    if first.time is None or second.time is None:
        return first.file == second.file and second.number - first.number < 200
    return second.time - first.time <= _JUST_BEFORE


def _finding(
    evidence: LogEvidence,
    line: LogLine,
    summary: str,
    causes: tuple[Cause, ...],
    lines: list[LogLine],
) -> Finding:
    shown = [line, *(other for other in lines if other is not line)]
    told = causes[0].confidence == "high" and causes[0] is not _OWN_ERROR
    return Finding(
        status=Status.FAIL,
        summary=f"{summary} ({line.who})",
        numbers={"lines": float(len(lines))},
        where=place(line),
        evidence=evidence.shown(shown),
        causes=causes,
        next_command=_DMESG if told else evidence.look_command(line),
    )


_OWN_ERROR = Cause(
    text="the exception just before, in the worker's own log",
    confidence="high",
    confirm="the lines around it",
)
_MEMORY = Cause(
    text="host memory: Ray killed the worker; the container's limit counts, not the"
    " machine's memory",
    confidence="high",
    confirm=f"memory over the steps (a leak grows with each); {_CGROUP}",
)
_NODE = Cause(
    text="the node is gone: rebooted, out of memory, or its network",
    confidence="high",
    confirm="ray status; uptime and dmesg of that node",
)
_UNTOLD = (
    Cause(
        text="killed for memory by the kernel or the container's limit",
        confidence="medium",
        confirm=f"{_DMESG}; {_CGROUP}",
    ),
    Cause(
        text="a crash in native code (segmentation fault)",
        confidence="low",
        confirm="dmesg for segfault; the worker's .err under /tmp/ray/session_latest",
    ),
    Cause(
        text="somebody or a scheduler ended it",
        confidence="low",
        confirm="the job scheduler's log at this time",
    ),
)
_TOLD = {
    "ray_memory": (
        "a worker was killed because the node ran out of memory",
        (_MEMORY,),
    ),
    "ray_node": ("Ray lost a node", (_NODE,)),
}

RULE = LogRule(
    id="ray_deaths",
    section="runtime",
    title="no worker or node died",
    marks=("ray_memory", "ray_node", "ray_death", "killed", "error"),
    judge=judge,
    survivable=True,
)
