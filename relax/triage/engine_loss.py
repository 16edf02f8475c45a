"""A rollout engine that ended or stalled: what its log says of it, and what to do now.

The log is judged by the same rules as any other log; what they find leads. A process
that was killed from outside leaves no word, and then its signal is what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax.triage.log_evidence import LogEvidence
from relax.triage.log_registry import run_log_rules
from relax.triage.verdict import (
    Cause,
    Evidence,
    Place,
    Status,
    Verdict,
    worst_first,
)

RULE = "engine_lost"
_SAYS = (Status.FAIL, Status.NON_FINITE, Status.WARN)
_ENDS = frozenset(
    {
        "engine_detokenizer",
        "engine_watchdog",
        "engine_killed",
        "engine_killed_early",
        "engine_illegal_access",
        "cuda_memory",
        "memory_on_resume",
        "disk_full",
    }
)
_KILLED = "SIGKILL"
_STALLED = "makes no tokens any more"


@dataclass(frozen=True, kw_only=True)
class EngineLoss:
    """An engine that is gone.

    Attributes:
        stage: That it was lost in.
        what: Which part, by what, and the telling line of its log.
        finished, total: Samples of the rollout; 0 of 0 when nothing was generated.
        log: Its log since its start.
        run: Run folder as a command line would name it.
    """

    rollout_id: int
    stage: str
    what: str
    finished: int
    total: int
    log: LogEvidence
    run: str = "RUN"


def judge_engine_loss(loss: EngineLoss) -> Verdict:
    """Names what the engine died of, as far as anything says so."""
    signs = signs_of(loss)
    numbers = {"finished": float(loss.finished), "total": float(loss.total)}
    told = Evidence(text=f"lost in {loss.stage}: {loss.what}")
    samples = Evidence(
        text=f"{loss.finished} of {loss.total} samples were finished; all are "
        "generated again"
    )
    return Verdict(
        rule=RULE,
        section="SGLang 1",
        status=Status.FAIL,
        summary=signs[0].summary if signs else loss.what,
        where=Place(rollout_id=loss.rollout_id),
        numbers=numbers if loss.total else {},
        evidence=(
            told,
            *((samples,) if loss.total else ()),
            *(line for sign in signs for line in sign.evidence),
        ),
        causes=tuple(c for sign in signs for c in sign.causes) or (_cause(loss),),
        next_command=f"relax-tui tell {loss.run} restart-engine",
    )


def signs_of(loss: EngineLoss) -> Sequence[Verdict]:
    """What the rules over logs say of its end, worst first.

    Only rules about ends are asked: the log of a server that was killed is full of
    complaints about the others' silence.
    """
    found = run_log_rules(loss.log)
    said = [one for one in found if one.rule in _ENDS and one.status in _SAYS]
    return worst_first(said)


def _cause(loss: EngineLoss) -> Cause:
    if _KILLED in loss.what:
        return Cause(
            text="killed from outside: the machine ran out of memory, or a person",
            confidence="medium",
            confirm="dmesg -T | grep -iE 'oom|killed process' | tail",
        )
    if _STALLED in loss.what:
        return Cause(
            text="a process of the engine stands still: stopped, or starved by string "
            "`stop` under many sessions",
            confidence="medium",
            confirm="py-spy dump of the detokenizer; its state in ps (T, D)",
        )
    return Cause(
        text="a crash that left no word",
        confidence="low",
        confirm="the last lines of its log",
    )
