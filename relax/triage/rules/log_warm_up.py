"""An engine that was killed while it was still warming up."""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence, place, seconds_between
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status

_WARM_UP_SECONDS = 600.0


def judge(evidence: LogEvidence) -> Finding | None:
    """A failed health check followed by a kill, near the engine's start."""
    dropped = evidence.of("engine_dropped")
    failed = evidence.of("health_failed")
    if not dropped or not failed:
        return None
    start = evidence.before(failed[0], "warming_up")
    gap = None if start is None else seconds_between(start, failed[0])
    early = start is not None and (gap is None or gap < _WARM_UP_SECONDS)
    wait = evidence.arguments.get("rollout_health_check_first_wait")
    told = "" if wait is None else f" (first wait is {wait} s)"
    numbers = {} if gap is None else {"seconds_after_warm_up": gap}
    return Finding(
        status=Status.FAIL,
        summary=f"the engine was killed while warming up{told}"
        if early
        else "the engine was killed after a failed health check",
        numbers=numbers,
        where=place(failed[0]),
        evidence=evidence.shown([failed[0], dropped[0]]),
        causes=(_WAIT,) if early else (_BUSY,),
        next_command=evidence.look_command(failed[0]),
    )


_WAIT = Cause(
    text="the monitor asks before kernels are compiled and graphs captured",
    confidence="high",
    confirm="--rollout-health-check-first-wait 300",
)
_BUSY = Cause(
    text="the engine no longer answered, after it had served",
    confidence="medium",
    confirm="its own log before the first failed check",
)

RULE = LogRule(
    id="engine_killed_early",
    section="runtime",
    title="engines are given time to warm up",
    marks=("engine_dropped", "health_failed", "warming_up"),
    judge=judge,
    survivable=True,
)
