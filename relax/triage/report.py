"""Verdicts as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from relax.triage.verdict import Status, Verdict, worst_first

_STATUS_WIDTH = max(map(len, Status))


def render_report(verdicts: Sequence[Verdict], *, details: bool = True) -> str:
    """Renders verdicts, worst first, one aligned line each.

    Args:
        verdicts: What the rules said.
        details: Below each verdict that is not PASS also its evidence, causes and next
            command.

    Returns:
        Lines joined by newlines, without a trailing one; a sentence when there is none.
    """
    if not verdicts:
        return "no rule was due"
    rule_width = max(len(verdict.rule) for verdict in verdicts)
    place_width = max(len(str(verdict.where)) for verdict in verdicts)
    lines: list[str] = []
    for verdict in worst_first(verdicts):
        lines.append(
            f"{verdict.status:<{_STATUS_WIDTH}}  {verdict.rule:<{rule_width}}  "
            f"{verdict.where!s:<{place_width}}  {verdict.summary}"
        )
        if details and verdict.status is not Status.PASS:
            lines += _details(verdict)
    return "\n".join(lines)


def _details(verdict: Verdict) -> list[str]:
    indent = " " * (_STATUS_WIDTH + 2)
    lines = []
    for observation in verdict.evidence:
        place = f" at {observation.where}" if observation.where else ""
        lines.append(f"{indent}seen   {observation.text}{place}")
    for cause in verdict.causes:
        lines.append(f"{indent}cause  {cause.text} ({cause.confidence})")
        lines.append(f"{indent}       confirm: {cause.confirm}")
    if verdict.next_command:
        lines.append(f"{indent}next   {verdict.next_command}")
    return lines


def count_line(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts have each status, e.g. ``1 FAIL, 7 PASS``."""
    counts = {
        status: sum(verdict.status is status for verdict in verdicts)
        for status in Status
    }
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)
