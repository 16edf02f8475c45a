"""Guide, check 3: ppo_kl of the first step on a rollout, where it can say anything.

With one step a rollout and no log-prob pass of its own, old_log_probs are the training
forward's own detached output: ratio 1, ppo_kl 0 and pg_clipfrac 0 by construction, so
the value proves nothing. With a separate pass it measures that two forward passes over
the same weights agree; the limit is what another padded length was seen to do.
"""

from __future__ import annotations

import math

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run, vacuous
from relax.triage.thresholds import PPO_KL, for_precision
from relax.triage.verdict import Cause, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Judges train/ppo_kl, or says why it cannot fail."""
    ppo_kl = evidence.number("train/ppo_kl")
    if ppo_kl is None:
        return not_run("train/ppo_kl", get_it="it appears after the train step")
    limit = for_precision(PPO_KL, evidence.precision).value
    numbers = {"ppo_kl": ppo_kl, "threshold": limit}
    if not math.isfinite(ppo_kl):
        return Finding(
            status=Status.NON_FINITE, summary=f"ppo_kl is {ppo_kl}", numbers=numbers
        )
    if evidence.number("rollout/tokens_unmasked") == 0:
        return vacuous("every token is masked: ppo_kl is an empty sum", numbers)
    if evidence.steps_per_rollout is None:
        return not_run("steps per rollout", get_it="give --num-steps-per-rollout")
    if evidence.steps_per_rollout > 1:
        return Finding(
            status=Status.INFO,
            summary=f"ppo_kl {ppo_kl:.3g}, last of {evidence.steps_per_rollout} steps",
            numbers=numbers,
        )
    if evidence.arguments.get("use_rollout_logprobs"):
        return Finding(
            status=Status.INFO,
            summary=f"ppo_kl {ppo_kl:.3g} against the engine's log-probs",
            numbers=numbers,
        )
    if not evidence.log_probs_recomputed:
        return vacuous("one step a rollout: old log-probs are the step's own", numbers)
    fault = abs(ppo_kl) > limit
    return Finding(
        status=Status.FAIL if fault else Status.PASS,
        summary=f"ppo_kl {ppo_kl:.3g} between log-prob pass and training forward",
        numbers=numbers,
        causes=_CAUSES if fault else (),
    )


_CAUSES = (
    Cause(
        text="the training forward differs from the log-prob pass: dropout, routing, "
        "or a kernel that depends on the batch",
        confidence="medium",
        confirm="log_probs_equal_ref: equal there means both scoring passes agree",
    ),
)

RULE = Rule(
    id="ppo_kl",
    section="3",
    title="ppo_kl of the first step on a rollout is 0",
    needs=("train/ppo_kl",),
    cost="metrics",
    stage="train",
    judge=judge,
)
