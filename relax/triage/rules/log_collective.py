"""A collective timed out or lost its peer: who is missing is the question.

The ranks that complain are healthy; the one that never came is not among them. When
they complain about different operations they have lost step with each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from relax.triage.log_evidence import LogEvidence, LogLine, place, who_says
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_NUMBER = re.compile(r"SeqNum ?= ?(\d+)")
_OPERATION = re.compile(r"OpType ?= ?(\w+)")
_ELEMENTS = re.compile(r"NumelIn ?= ?(\d+)")
_MILLISECONDS = re.compile(r"(?:ran|running) for (\d+) milliseconds")
_RANK = re.compile(r"\d+")
_FEW_ELEMENTS = 8
_FEWEST_RANKS = 3


def judge(evidence: LogEvidence) -> Finding | None:
    """Names the missing rank, or the loss of step."""
    lines = evidence.of("collective_timeout")
    if not lines:
        return _judge_peers(evidence)
    if (follows := fallout(evidence, lines[0])) is not None:
        return follows
    numbers = _seen(lines[0])
    sequence = {found[1] for line in lines if (found := _NUMBER.search(line.text))}
    missing = _missing(lines, evidence)
    if missing:
        named = ", ".join(f"rank {rank}" for rank in missing)
        summary = f"a collective waited for {named}, which reports nothing"
        causes = (_never_came(named, numbers),)
    elif len(sequence) > 1:
        summary = f"ranks wait in {len(sequence)} different collectives: out of step"
        causes = (_DESYNC,)
    else:
        operation = _OPERATION.search(lines[0].text)
        summary = f"collective {operation[1] if operation else ''} timed out on" + (
            f" {len(who_says(lines))} ranks"
        )
        causes = (_never_came("the rank that reports nothing", numbers),)
    return Finding(
        status=Status.FAIL,
        summary=summary,
        numbers={**numbers, "ranks_reporting": float(len(who_says(lines)))},
        where=place(lines[0]),
        evidence=evidence.shown(lines),
        causes=causes,
        next_command=evidence.look_command(lines[0]),
    )


def _judge_peers(evidence: LogEvidence) -> Finding | None:
    lines = evidence.of("nccl_error", "peer_closed")
    if not lines:
        return None
    if (follows := fallout(evidence, lines[0])) is not None:
        return follows
    return Finding(
        status=Status.FAIL,
        summary=f"connection to a peer lost, first on {lines[0].who}",
        numbers={"lines": float(evidence.count("nccl_error", "peer_closed"))},
        where=place(lines[0]),
        evidence=evidence.shown(lines),
        causes=(_PEER,),
        next_command=evidence.look_command(lines[0]),
    )


def _seen(line: LogLine) -> dict[str, float]:
    found = {
        "sequence": _NUMBER,
        "elements": _ELEMENTS,
        "milliseconds": _MILLISECONDS,
    }
    return {
        name: float(match[1])
        for name, expression in found.items()
        if (match := expression.search(line.text)) is not None
    }


def _missing(lines: Sequence[LogLine], evidence: LogEvidence) -> list[int]:
    """Ranks that should have reported and did not; [] when that is not known."""
    ranks = {
        int(found[0])
        for line in lines
        if line.rank.startswith("rank") and (found := _RANK.search(line.rank))
    }
    world = evidence.arguments.get("world_size")
    size = world if isinstance(world, int) else max(ranks, default=-1) + 1
    missing = sorted(set(range(size)) - ranks)
    enough = len(ranks) >= _FEWEST_RANKS
    return missing if enough and len(missing) <= len(ranks) // 2 else []


def _never_came(named: str, numbers: dict[str, float]) -> Cause:
    barrier = numbers.get("elements", _FEW_ELEMENTS + 1) <= _FEW_ELEMENTS
    flow = "; so small a collective is a barrier: control flow differs there"
    return Cause(
        text=f"{named} died, hangs or took another way{flow if barrier else ''}",
        confidence="high" if named.startswith("rank") else "medium",
        confirm=f"the last lines of {named}; py-spy dump of its process",
    )


_DESYNC = Cause(
    text="ranks went different ways: another number of micro-batches, an exception on"
    " some, a branch on local data",
    confidence="medium",
    confirm="the number of micro-batches of each rank before that step",
)
_PEER = Cause(
    text="a peer died or the network failed: nothing before it says why",
    confidence="medium",
    confirm="logs of the other nodes at this time; dmesg; the NIC's counters",
)

RULE = LogRule(
    id="collective_stuck",
    section="runtime",
    title="collectives end",
    marks=("collective_timeout", "nccl_error", "peer_closed"),
    judge=judge,
    survivable=True,
)
