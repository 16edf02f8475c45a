"""Trainer against engine: log_probs and rollout_log_probs of the same tokens agree.

Two implementations of one model differ by rounding: on CPU in float32 a mean of 3e-6
was measured, on GPUs in bfloat16 upstream projects accept 0.1 on the mean. The pattern
of a larger difference names its cause: a straight line with another slope is a
temperature, equality one position over is a shift, an offset of one sign is a
distribution cut by top-p or top-k on one side.
"""

from __future__ import annotations

import math

import numpy as np

from relax.measure.logprob_metrics import concatenate_unmasked
from relax.triage import thresholds as limits
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, non_finite, not_run, vacuous
from relax.triage.thresholds import for_precision
from relax.triage.verdict import Cause, Evidence, Place, Status

_COLUMNS = ("log_probs", "rollout_log_probs")


def judge(evidence: RolloutEvidence) -> Finding:
    """Judges the mean absolute difference, and names the pattern of a large one."""
    if (broken := non_finite(evidence, *_COLUMNS)) is not None:
        return broken
    if evidence.number("logprob_rollout/tokens") == 0:
        return vacuous("every token is masked: nothing was compared", {"tokens": 0})
    mean = evidence.number("logprob_rollout/abs_diff")
    if mean is None:
        mean = evidence.number("train/train_rollout_logprob_abs_diff")
    if mean is None:
        return not_run(
            "log_probs beside rollout_log_probs",
            get_it="let the engine return log-probs and the log-prob pass run",
        )
    reused = evidence.arguments.get("use_rollout_logprobs")
    if reused and not evidence.number("logprob_rollout/unequal"):
        return vacuous("log_probs are the engine's own (--use-rollout-logprobs)")
    warn = for_precision(limits.ENGINE_DIFFERENCE_WARN, evidence.precision)
    fail = for_precision(limits.ENGINE_DIFFERENCE_FAIL, evidence.precision)
    numbers = {
        "mean_abs": mean,
        "threshold_warn": warn.value,
        "threshold_fail": fail.value,
    }
    for name in ("max_abs", "p50", "p95", "p99", "slope", "correlation"):
        value = evidence.number(f"logprob_rollout/{name}")
        if value is not None:
            numbers[name] = value
    if mean <= warn.value:
        return Finding(
            status=Status.PASS, summary=_summary(numbers, None), numbers=numbers
        )
    pattern = _pattern(evidence, numbers)
    where = _worst_place(evidence)
    return Finding(
        # Written so that a NaN mean, which fails every comparison, fails the rule.
        status=Status.WARN if mean <= fail.value else Status.FAIL,
        summary=_summary(numbers, pattern),
        numbers=numbers,
        where=where,
        evidence=(Evidence(text="largest difference", where=where),),
        causes=_causes(pattern, evidence),
    )


def _worst_place(evidence: RolloutEvidence) -> Place:
    difference = evidence.compare(*_COLUMNS)
    return evidence.at(difference.max_abs_place if difference else None)


def _summary(numbers: dict[str, float], pattern: str | None) -> str:
    text = f"mean |Δ| {numbers['mean_abs']:.2g}"
    if "max_abs" in numbers:
        text += f", max {numbers['max_abs']:.2g}"
    if pattern == "slope":
        text = f"slope {numbers['slope']:.2f}, " + text
    elif pattern is not None:
        text += f": {pattern}"
    return text


def _pattern(evidence: RolloutEvidence, numbers: dict[str, float]) -> str | None:
    """Names the shape of the difference, or None when it has none."""
    if (shift := _shift(evidence, numbers["mean_abs"])) is not None:
        return f"shifted by {shift:+d}"
    slope, correlation = numbers.get("slope"), numbers.get("correlation")
    if slope is not None and correlation is not None:
        # Scatter alone flattens a fitted slope to the correlation; what is left after
        # dividing by it is the ratio of the spreads. A temperature moves that ratio as
        # far as the points scatter, independent noise by its square only.
        deviation = abs(slope / correlation - 1) if correlation > 0 else 0.0
        scatter = math.sqrt(max(1 - correlation**2, 0.0))
        limit = max(
            limits.SLOPE_DEVIATION.value, limits.SLOPE_SCATTER_RATIO.value * scatter
        )
        if correlation >= limits.SLOPE_CORRELATION.value and deviation >= limit:
            return "slope"
    column, other = (evidence.token_column(name) for name in _COLUMNS)
    if column is None or other is None or evidence.masks is None:
        return None
    ours, theirs = concatenate_unmasked(column, other, evidence.masks)
    signs = np.sign(ours - theirs)
    if signs.size and abs(signs.sum()) >= 0.95 * signs.size:
        return "offset"
    return None


def _shift(evidence: RolloutEvidence, mean: float) -> int | None:
    """The number of positions by which one column must move to fit the other."""
    column, other = (evidence.token_column(name) for name in _COLUMNS)
    if column is None or other is None:
        return None
    for shift in (1, -1):
        total, count = 0.0, 0
        for ours, theirs in zip(column, other, strict=True):
            if ours is None or theirs is None or ours.size < 2:
                continue
            moved = (ours[1:] - theirs[:-1]) if shift == 1 else (ours[:-1] - theirs[1:])
            total += float(np.abs(moved.astype(np.float64)).sum())
            count += moved.size
        if count and total / count < limits.SHIFT_RATIO.value * mean:
            return shift
    return None


def _causes(pattern: str | None, evidence: RolloutEvidence) -> tuple[Cause, ...]:
    stale = Cause(
        text="the engine runs other weights: a stale, partial or broken update",
        confidence="medium",
        confirm="compare the engine's and the trainer's weights after the next update",
    )
    template = Cause(
        text="engine and trainer saw different tokens or positions",
        confidence="low",
        confirm="the tokens column against what the engine was sent",
    )
    if pattern == "slope":
        temperature = evidence.arguments.get("rollout_temperature")
        told = "" if temperature is None else f" (--rollout-temperature {temperature})"
        return (
            Cause(
                text=f"a temperature on one side only{told}: the slope is the engine's "
                "over the trainer's",
                confidence="high",
                confirm="the temperature sent to the engine, against the trainer's",
            ),
            stale,
        )
    if pattern is not None and pattern.startswith("shifted"):
        return (
            Cause(
                text="log-probs are off by one position against their tokens",
                confidence="high",
                confirm="position j must score tokens[T-R+j] from logits one earlier",
            ),
        )
    if pattern == "offset":
        return (
            Cause(
                text="one side cuts and renormalises the distribution (top-p, top-k)",
                confidence="medium",
                confirm="--rollout-top-p 1 and --rollout-top-k -1",
            ),
            stale,
        )
    return (stale, template)


RULE = Rule(
    id="log_probs_vs_rollout",
    section="2",
    title="log_probs agrees with the engine's",
    needs=("log_probs", "rollout_log_probs", "loss_mask"),
    cost="metrics",
    stage="log_probs",
    judge=judge,
)
