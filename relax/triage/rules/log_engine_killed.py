"""SIGQUIT in the engine's parent: a child failed; why, stands before it."""

from __future__ import annotations

import signal

from relax.triage.log_evidence import LogEvidence, LogLine, exit_code_of, place
from relax.triage.log_rule import LogRule, fallout
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Status


def judge(evidence: LogEvidence) -> Finding | None:
    """Looks for what came before."""
    lines = [
        line for line in evidence.of("sigquit") if not evidence.was_asked_to_end(line)
    ]
    if not lines:
        return None
    first = lines[0]
    if (follows := fallout(evidence, first)) is not None:
        return follows
    exception = evidence.before(first, "scheduler", "error")
    child = evidence.before(first, "child_exit")
    shown = [line for line in (exception, child, first) if line is not None]
    return Finding(
        status=Status.FAIL,
        summary="the engine was killed by SIGQUIT: a child process failed",
        numbers={"lines": float(evidence.count("sigquit"))},
        where=place(first),
        evidence=evidence.shown(shown),
        causes=(_cause(exception, child),),
        next_command=evidence.look_command(exception or first),
    )


def _cause(exception: LogLine | None, child: LogLine | None) -> Cause:
    code = None if child is None else exit_code_of(child)
    if code == -signal.SIGKILL:
        return Cause(
            text="the child was killed by SIGKILL: most likely for memory",
            confidence="high",
            confirm="dmesg -T | grep -iE 'oom|killed process' | tail",
        )
    if exception is not None:
        return Cause(
            text="the exception before it",
            confidence="high",
            confirm=f"line {exception.number} of {exception.file}",
        )
    return Cause(
        text="a child that died without a word (killed, a crash in native code)",
        confidence="medium",
        confirm="dmesg, and the lines before",
    )


RULE = LogRule(
    id="engine_killed",
    section="SGLang 1",
    title="no engine was killed by a failed child",
    marks=("sigquit", "child_exit", "scheduler", "error"),
    judge=judge,
    survivable=True,
)
