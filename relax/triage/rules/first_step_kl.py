"""Guide, check 3: the KL of the first step is 0.

Taken from log_probs against ref_log_probs, two counted forward passes, as k3, which is
positive as soon as one token differs; k1 can cancel. train/kl_loss stands in for logs
without those columns, with slime's limit of 1e-8; ppo_kl never does, since with one
step a rollout it is 0 by construction.
"""

from __future__ import annotations

import math

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, non_finite, not_run, vacuous
from relax.triage.thresholds import FIRST_STEP_KL, KERNEL_NOISE, for_precision
from relax.triage.verdict import Cause, Place, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Holds the first rollout's KL against 0."""
    if (broken := non_finite(evidence, "log_probs", "ref_log_probs")) is not None:
        return broken
    exact = evidence.number("rollout/kl_k3")
    kl = exact if exact is not None else evidence.number("train/kl_loss")
    if kl is None:
        return not_run(
            "KL against a reference",
            get_it="start with --ref-load (the first rollout suffices)",
        )
    if exact is not None and evidence.number("rollout/tokens_unmasked") == 0:
        return vacuous("every token is masked: the KL is an empty sum", {"tokens": 0})
    if not math.isfinite(kl):
        return Finding(
            status=Status.NON_FINITE, summary=f"KL is {kl}", numbers={"kl": kl}
        )
    limit = 0.0 if exact is not None else FIRST_STEP_KL.value
    numbers = {"kl": kl, "threshold": limit}
    k1 = evidence.number("rollout/kl")
    if k1 is not None:
        numbers["kl_k1"] = k1
    source = "k3 of log_probs and ref_log_probs" if exact is not None else "kl_loss"
    if not evidence.expects_reference_equality:
        status, summary = Status.INFO, f"KL {kl:.3g} after training ({source})"
    elif abs(kl) <= limit:
        status, summary = Status.PASS, f"KL {kl:.3g} ({source})"
    else:
        status, summary = Status.FAIL, f"KL {kl:.3g} at the first step ({source})"
    fault = status is Status.FAIL
    return Finding(
        status=status,
        summary=summary,
        numbers=numbers,
        where=_first_unequal(evidence) if fault else None,
        causes=_causes(evidence, kl) if fault else (),
    )


def _first_unequal(evidence: RolloutEvidence) -> Place:
    difference = evidence.compare("log_probs", "ref_log_probs")
    return evidence.at(difference.first_unequal if difference else None)


def _causes(evidence: RolloutEvidence, kl: float) -> tuple[Cause, ...]:
    """An MoE model points at permute fusion, a large KL at other weights."""
    again = evidence.repeated_unequal
    # k3 grows with half the square of the difference.
    noise = for_precision(KERNEL_NOISE, evidence.precision).value ** 2 / 2
    is_noise = abs(kl) <= noise if again is None else again > 0
    causes = [
        Cause(
            text="a nondeterministic Megatron or Transformer Engine kernel",
            confidence="medium" if is_noise else "low",
            confirm="--attention-backend flash; log_probs_equal_ref says which tokens",
        ),
        Cause(
            text="--ref-load names other weights than the policy started from",
            confidence="low" if is_noise else "high",
            confirm="compare --ref-load with --load and --hf-checkpoint",
        ),
    ]
    if not is_noise:
        causes.reverse()
    if evidence.arguments.get("num_moe_experts"):
        causes.insert(
            0,
            Cause(
                text="an MoE model needs --moe-permute-fusion",
                confidence="medium",
                confirm="start with --moe-permute-fusion",
            ),
        )
    return tuple(causes)


RULE = Rule(
    id="first_step_kl",
    section="3",
    title="KL of the first step is 0",
    needs=("log_probs", "ref_log_probs", "loss_mask"),
    cost="metrics",
    stage="log_probs",
    judge=judge,
)
