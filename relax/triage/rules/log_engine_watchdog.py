"""A scheduler step took longer than the engine's watchdog allows, and it was killed.

All ranks at once wait for something they share; one rank alone is stuck by itself. The
kill that follows is the watchdog's, not a crash, and not the kernel's for memory.
"""

from __future__ import annotations

import re

from relax.triage.log_evidence import LogEvidence, place, who_says
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_LIMIT = re.compile(r"watchdog_timeout=(\d+)")


def judge(evidence: LogEvidence) -> Finding | None:
    """Counts the ranks that say so."""
    lines = evidence.of("engine_watchdog")
    if not lines:
        return None
    if (follows := fallout(evidence, lines[0])) is not None:
        return follows
    match = _LIMIT.search(lines[0].text)
    limit = match[1] if match else "its limit of"
    ranks = who_says(lines)
    numbers = {"ranks": float(len(ranks)), "lines": float(len(lines))}
    alone = len(ranks) == 1
    summary = (
        f"{ranks[0]} alone was stuck for {limit} s"
        if alone
        else f"one scheduler step took over {limit} s on {len(ranks) or 'all'} ranks"
    )
    return Finding(
        status=Status.FAIL,
        summary=f"{summary}; the kill is the watchdog's",
        numbers=numbers,
        where=place(lines[0]),
        evidence=evidence.shown(lines),
        causes=(_ONE_RANK,) if alone else (_SHARED, _MEMORY),
        next_command=evidence.look_command(lines[0]),
    )


_ONE_RANK = Cause(
    text="this rank is stuck by itself",
    confidence="medium",
    confirm="py-spy dump of its process, and its last lines before",
)
_SHARED = Cause(
    text="what all ranks waited for began a watchdog's time before: a huge prefill, a"
    " collective, a weight push",
    confidence="medium",
    confirm="the last lines of each rank before that time",
)
_MEMORY = Cause(
    text="the machine was out of processors or memory (swapping)",
    confidence="low",
    confirm="dmesg, and the load of the node at that time",
)

RULE = LogRule(
    id="engine_watchdog",
    section="runtime",
    title="no scheduler step outlasts the engine's watchdog",
    marks=("engine_watchdog",),
    judge=judge,
    survivable=True,
)
