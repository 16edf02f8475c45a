"""Disks: a warning that repeats hides other lines, a full disk truncates files."""

from __future__ import annotations

import re

from relax.triage.log_evidence import LogEvidence, place
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_FREE = re.compile(r"available space: *(\d+)", re.IGNORECASE)
_GIB = 1 << 30
_LITTLE = 5 * _GIB


def judge(evidence: LogEvidence) -> Finding | None:
    """Groups the warnings; a full disk, or one about to be, fails."""
    full, low = evidence.of("disk_full"), evidence.of("disk_low")
    if not full and not low:
        return None
    count = evidence.count("disk_low")
    free = [int(match[1]) for line in low if (match := _FREE.search(line.text))]
    numbers = {"warnings": float(count), "errors": float(evidence.count("disk_full"))}
    if free:
        numbers["last_free_bytes"] = float(free[-1])
    empty = bool(free) and free[-1] < _LITTLE
    first = (full or low)[0]
    if full:
        summary = "the disk was full: files written then are cut short"
    elif empty:
        summary = f"the disk is about to be full ({free[-1] / _GIB:.1f} GiB free)"
    else:
        summary = f"disk over 95 % full, said {count} times"
    return Finding(
        status=Status.FAIL if full or empty else Status.WARN,
        summary=summary,
        numbers=numbers,
        where=place(first),
        evidence=evidence.shown([*full[:2], *low[:1]]),
        causes=(_CAUSE,),
        next_command="df -h . /tmp /dev/shm; du -xsh /tmp/ray 2>/dev/null",
    )


_CAUSE = Cause(
    text="logs, spilled objects, dumps or checkpoints fill it",
    confidence="high",
    confirm="relax-tui dumps verify on the dumps of that time; --dump-keep-last",
)

RULE = LogRule(
    id="disk_full",
    section="runtime",
    title="disks have room",
    marks=("disk_full", "disk_low"),
    judge=judge,
)
