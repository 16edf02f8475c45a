"""From verdicts to one outcome: rolled up by rule, an exit code, one JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from relax.triage.verdict import SEVERITY, Status, Verdict, worst_first
from relax_tui.checking.checked import Checked

SCHEMA: Final = 1
"""Of the JSON document; `relax/triage/report.schema.json` describes it."""

FailOn: TypeAlias = Literal["warn", "fail"]

CLEAN, FOUND, UNREADABLE, NOTHING = 0, 1, 2, 3

_FAULTS: Final = (Status.FAIL, Status.NON_FINITE)
_UNHEALTHY: Final = (*_FAULTS, Status.WARN)
_SAYS_NOTHING: Final = (Status.NOT_RUN, Status.VACUOUS)


@dataclass(frozen=True, kw_only=True)
class RuleOutcome:
    """What a rule said over all rollouts.

    Attributes:
        verdict: The worst that it said, the first of those; else the newest PASS.
        times: How often it was not healthy.
        rollouts: How many it judged.
    """

    verdict: Verdict
    times: int
    rollouts: int

    @property
    def unhealthy(self) -> bool:
        """Whether something is to be done."""
        return self.verdict.status in _UNHEALTHY


def by_rule(verdicts: Iterable[Verdict]) -> list[RuleOutcome]:
    """One outcome a rule, worst first; of equal ones the earlier rollout first."""
    given: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        given.setdefault(verdict.rule, []).append(verdict)
    outcomes = []
    for said in given.values():
        unhealthy = [v for v in said if v.status in _UNHEALTHY]
        passed = [v for v in said if v.status is Status.PASS]
        told = [v for v in said if v.status not in _SAYS_NOTHING]
        worst = min(unhealthy, key=lambda v: SEVERITY[v.status], default=None)
        shown = worst or (passed or told or said)[-1]
        outcomes.append(
            RuleOutcome(
                verdict=shown,
                times=len(unhealthy),
                rollouts=len({v.where.rollout_id for v in said}),
            )
        )
    return sorted(
        outcomes,
        key=lambda o: (SEVERITY[o.verdict.status], o.verdict.where.rollout_id),
    )


def exit_code(verdicts: Sequence[Verdict], *, fail_on: FailOn = "fail") -> int:
    """The exit code for what was said.

    Args:
        verdicts: All of them.
        fail_on: ``warn``: a warning counts as a fault too.

    Returns:
        0 nothing found, 1 a fault, 3 nothing could be checked.
    """
    statuses = {verdict.status for verdict in verdicts}
    faults = _UNHEALTHY if fail_on == "warn" else _FAULTS
    if statuses & set(faults):
        return FOUND
    return NOTHING if statuses <= set(_SAYS_NOTHING) else CLEAN


def counts(outcomes: Iterable[RuleOutcome]) -> dict[str, int]:
    """How many rules ended in each status, worst first."""
    found = Counter(outcome.verdict.status for outcome in outcomes)
    return {str(status): found[status] for status in Status if found[status]}


def document(checked: Checked, *, fail_on: FailOn = "fail") -> dict[str, Any]:
    """The result as one JSON document (`relax/triage/report.schema.json`).

    Args:
        checked: The result.
        fail_on: As for `exit_code`.
    """
    outcomes = by_rule(checked.verdicts)
    return {
        "schema": SCHEMA,
        "exit_code": exit_code(checked.verdicts, fail_on=fail_on),
        "counts": counts(outcomes),
        "read": list(checked.read),
        "rollouts": list(checked.rollouts),
        "rules": [
            {
                "rule": outcome.verdict.rule,
                "status": str(outcome.verdict.status),
                "times": outcome.times,
                "rollouts": outcome.rollouts,
                "verdict": outcome.verdict.to_json(),
            }
            for outcome in outcomes
        ],
        "verdicts": [v.to_json() for v in worst_first(checked.verdicts)],
        "unread": list(checked.unread),
        "missing": list(checked.missing),
    }
