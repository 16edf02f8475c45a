"""Parts of a snapshot that are made from numbers and verdicts; pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence

from relax.events.types import Stage, StageFinished
from relax.triage.verdict import SEVERITY, Status, Verdict
from relax_tui.sources.base import Figure, StageLine, StageState, VerdictLine

_PARTS = {"embedding": "emb", "attention": "attn", "output": "head"}
"""Parts of a model as the figures spell them."""
UNHEALTHY = (Status.FAIL, Status.NON_FINITE, Status.WARN)


def figures(
    found: Mapping[str, float],
    verdicts: Mapping[str, Sequence[Verdict]],
    first: int | None,
) -> tuple[Figure, ...]:
    """The first rollout's figures, each with what its rule said.

    Args:
        found: Metrics of the first rollout, its first step's where there are several.
        verdicts: All verdicts by rule.
        first: The first rollout's id.

    Returns:
        KL, grad_norm, unequal tokens, non-finite values, largest difference, and
        grad_norm by part of the model, where it was measured.
    """
    nonfinite = [v for key, v in found.items() if key.startswith("nonfinite/")]
    broken = sum(nonfinite) if nonfinite else None
    unequal, tokens = (found.get(f"logprob_ref/{k}") for k in ("unequal", "tokens"))
    counted = unequal is not None and tokens is not None
    # k3, as the rule judges it: k1 can cancel.
    kl = found.get("rollout/kl_k3", found.get("rollout/kl"))
    said = {rule: _said_of(first, given) for rule, given in verdicts.items()}
    equal = said.get("log_probs_equal_ref", "")
    return (
        Figure(label="KL", text=_text(kl), status=said.get("first_step_kl", "")),
        Figure(
            label="grad_norm",
            text=_text(found.get("train/grad_norm")),
            status=said.get("grad_norm", ""),
        ),
        Figure(
            label="unequal",
            text=f"{unequal:,.0f} of {tokens:,.0f} tokens" if counted else "",
            status=equal,
        ),
        Figure(
            label="nonfinite",
            text=_text(broken),
            status=str(Status.NON_FINITE) if broken else "",
        ),
        Figure(
            label="max |lp-ref|",
            text=_text(found.get("logprob_ref/max_abs")),
            status=equal,
        ),
        *_gradient_parts(found),
    )


def _gradient_parts(found: Mapping[str, float]) -> tuple[Figure, ...]:
    """grad_norm by part of the model, the largest first."""
    prefix = "train/grad_norm/"
    parts = {k.removeprefix(prefix): v for k, v in found.items() if prefix in k}
    if not parts:
        return ()
    # What is not a number is what one looks for: it comes first.
    order = sorted(parts, key=lambda name: _descending(parts[name]))
    text = " ".join(f"{_PARTS.get(name, name)} {parts[name]:.2g}" for name in order)
    return (Figure(label="grad by part", text=text, status=""),)


def _descending(value: float) -> float:
    return -value if math.isfinite(value) else -math.inf


def _said_of(rollout_id: int | None, verdicts: Sequence[Verdict]) -> str:
    """What a rule said of one rollout; '' when nothing."""
    for verdict in verdicts:
        if verdict.where.rollout_id == rollout_id:
            return str(verdict.status)
    return ""


def verdict_lines(
    verdicts: Mapping[str, Sequence[Verdict]],
) -> tuple[VerdictLine, ...]:
    """One line a rule, worst first: its first unhealthy verdict, else its newest."""
    lines = []
    for given in verdicts.values():
        unhealthy = [v for v in given if v.status in UNHEALTHY]
        worst = min(unhealthy, key=lambda v: SEVERITY[v.status], default=None)
        lines.append(
            VerdictLine(
                verdict=worst or given[-1], times=len(unhealthy), newest=given[-1]
            )
        )
    return tuple(sorted(lines, key=_severity))


def _severity(line: VerdictLine) -> tuple[int, int]:
    # Within one status the order of the guide stays, in which the rules report.
    return SEVERITY[line.verdict.status], line.verdict.where.rollout_id


def stage_line(
    stage: Stage,
    *,
    done: StageFinished | None,
    durations: Collection[float],
    running: bool,
    slow: str,
) -> StageLine:
    """A stage of the rollout that runs.

    Args:
        stage: Which.
        done: Its end, when it has ended.
        durations: Its wall times so far, seconds.
        running: Whether it runs now.
        slow: Why it counts as slow; '' when it does not.
    """
    median = statistics.median(durations) if durations else None
    if done is None:
        return StageLine(
            stage=str(stage),
            state=StageState.RUNNING if running else StageState.TO_COME,
            median_seconds=median,
            slow=slow if running else "",
        )
    memory = sum(done.memory_bytes.values()) if done.memory_bytes else None
    return StageLine(
        stage=str(stage),
        state=StageState.DONE,
        seconds=done.seconds,
        median_seconds=median,
        memory_bytes=memory,
    )


def _text(value: float | None) -> str:
    """A number in few cells: ``0``, ``0.412``, ``2.1e-04``, ``nan``; '' for none."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if 0.001 <= size < 10000:
        digits = 3 if size < 10 else 1
        return f"{value:.{digits}f}"
    return f"{value:.1e}"
