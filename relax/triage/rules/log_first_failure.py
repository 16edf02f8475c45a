"""Which process failed first in time, and what followed from it."""

from __future__ import annotations

from functools import partial

from relax.triage.log_evidence import LogEvidence, LogLine, place, seconds_between
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Evidence, Status

_UNNAMED = ("error", "scheduler")
_MANY_LINES = 500


def judge(evidence: LogEvidence) -> Finding | None:
    """Tells the story of the first failure; a named one has a rule of its own."""
    named = evidence.first_failure
    unnamed = next((line for line in evidence.lines if line.mark in _UNNAMED), None)
    first = named or unnamed
    if first is None:
        return None
    chain = _chain(evidence, first)
    over = named is None and all(map(partial(_is_over, evidence), _of_kind(evidence)))
    kind = first.mark.replace("_", " ")
    summary = f"first: {kind} on {first.who}, line {first.number}"
    if len(chain) > 1:
        summary += f"; {len(chain) - 1} kinds of lines follow"
    if over:
        summary = f"errors in {evidence.count(*_UNNAMED)} lines; the run went on"
    return Finding(
        status=Status.INFO if named is not None or over else Status.WARN,
        summary=summary,
        numbers={"kinds": float(len(chain))},
        where=place(first),
        evidence=tuple(
            Evidence(
                text=f"{_after(first, line)}{line}",
                where=place(line),
                file=line.file,
                line=line.number,
            )
            for line in chain[:4]
        ),
        next_command=evidence.look_command(first),
    )


def _of_kind(evidence: LogEvidence) -> list[LogLine]:
    return evidence.of(*_UNNAMED)


def _is_over(evidence: LogEvidence, line: LogLine) -> bool:
    """Whether a run went on after an error, as most do after one in a reward."""
    return evidence.went_on(line) or evidence.lines_after(line) > _MANY_LINES


def _chain(evidence: LogEvidence, first: LogLine) -> list[LogLine]:
    """The first line of each kind of failure, from the first failure on."""
    at = evidence.lines.index(first)
    seen: dict[str, LogLine] = {}
    for line in evidence.lines[at:]:
        if line.mark not in ("release_memory", "resume_memory", "weights_pushed"):
            seen.setdefault(line.mark, line)
    return list(seen.values())


def _after(first: LogLine, line: LogLine) -> str:
    gap = seconds_between(first, line)
    return "" if gap is None or line is first else f"+{gap:.0f} s "


RULE = LogRule(
    id="first_failure",
    section="runtime",
    title="no process failed",
    marks=_UNNAMED,
    judge=judge,
)
