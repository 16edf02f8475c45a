"""Guide, check 3: the first grad_norm is finite and small.

The guide gives no number. The limits are ten and a hundred times Megatron's default
--clip-grad of 1.0; small healthy models were seen at 0.4 to 1.6. A grad_norm of exactly
0 is a fault only when some group's rewards differ: without contrast it must be 0.
"""

from __future__ import annotations

import math

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run, vacuous
from relax.triage.thresholds import FIRST_GRAD_NORM_FAIL, FIRST_GRAD_NORM_WARN
from relax.triage.verdict import Cause, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Judges the rollout's grad_norm."""
    grad_norm = evidence.number("train/grad_norm")
    if grad_norm is None:
        return not_run("train/grad_norm", get_it="it appears after the train step")
    numbers = {
        "grad_norm": grad_norm,
        "threshold_warn": FIRST_GRAD_NORM_WARN.value,
        "threshold_fail": FIRST_GRAD_NORM_FAIL.value,
    }
    if not math.isfinite(grad_norm):
        return Finding(
            status=Status.NON_FINITE,
            summary=f"grad_norm is {grad_norm}; the optimizer skips such a step",
            numbers=numbers,
            causes=_NON_FINITE_CAUSES,
        )
    if evidence.number("rollout/tokens_unmasked") == 0:
        return vacuous("every token is masked: there is no gradient", numbers)
    if grad_norm == 0:
        return _judge_zero(evidence, numbers)
    first = evidence.rollout_id == 0
    if grad_norm <= FIRST_GRAD_NORM_WARN.value:
        status = Status.PASS
    elif first and grad_norm > FIRST_GRAD_NORM_FAIL.value:
        status = Status.FAIL
    else:
        status = Status.WARN
    return Finding(
        status=status,
        summary=f"grad_norm {grad_norm:.3g}" + (" at the first step" if first else ""),
        numbers=numbers,
        causes=() if status is Status.PASS else _large_causes(first=first),
    )


def _judge_zero(evidence: RolloutEvidence, numbers: dict[str, float]) -> Finding:
    """Zero gradient: due without a signal, a fault with one."""
    flat = evidence.zero_std_fraction
    if flat == 1:
        return vacuous("grad_norm 0: all groups have equal rewards", numbers)
    return Finding(
        status=Status.WARN if flat is None else Status.FAIL,
        summary="grad_norm is exactly 0"
        + ("" if flat is None else " although rewards differ within groups"),
        numbers=numbers,
        causes=(
            Cause(
                text="advantages are 0 or never reach the loss",
                confidence="medium",
                confirm="the advantages column and the loss masks of this rollout",
            ),
        ),
    )


_NON_FINITE_CAUSES = (
    Cause(
        text="NaN or infinities in log-probs, advantages or rewards",
        confidence="high",
        confirm="the nonfinite counts of this rollout's columns",
    ),
    Cause(
        text="overflow in the backward pass",
        confidence="medium",
        confirm="replay the step in float32",
    ),
)


def _large_causes(*, first: bool) -> tuple[Cause, ...]:
    megatron = Cause(
        text="a Megatron or Transformer Engine fault, or a badly loaded checkpoint",
        confidence="medium",
        confirm="log_probs_equal_ref and first_step_kl; grad_norm by part",
    )
    diverging = Cause(
        text="training diverges: learning rate, clipping or reward",
        confidence="medium",
        confirm="the curves of grad_norm, KL and reward over rollouts",
    )
    return (megatron,) if first else (diverging, megatron)


RULE = Rule(
    id="grad_norm",
    section="3",
    title="grad_norm finite and small",
    needs=("train/grad_norm",),
    cost="metrics",
    stage="train",
    judge=judge,
)
