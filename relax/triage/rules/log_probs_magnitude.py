"""Guide, check 2: the log-probs are small, that is, as small as the entropy allows.

A fixed limit on mean |log_prob| fails small models and high temperatures that are
healthy, and passes large ones that are not. For tokens the model sampled itself the
expectation of -log_prob, given the prefix, is the entropy; the mean gap is therefore 0
within sampling error whatever the model, and a gap means that the trainer scores with
another distribution than was sampled from. The guide's limit of 1 is told as evidence.
"""

from __future__ import annotations

import math

from relax.measure.reduction import Mean
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, non_finite, not_run, vacuous
from relax.triage.thresholds import (
    ENTROPY_GAP_NATS,
    ENTROPY_GAP_SIGMAS,
    ENTROPY_GAP_TOKENS,
    LOG_PROB_MAGNITUDE,
)
from relax.triage.verdict import Cause, Evidence, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Holds mean(-log_prob) against mean entropy."""
    if (broken := non_finite(evidence, "log_probs", "entropy")) is not None:
        return broken
    mean_log_prob = evidence.number("rollout/log_probs")
    if mean_log_prob is None:
        return not_run("log_probs", get_it="let the log-prob pass run")
    if evidence.number("rollout/tokens_unmasked") == 0:
        return vacuous("every token is masked: there is no mean", {"tokens": 0})
    gap = evidence.measured.get("logprob_entropy/gap")
    square = evidence.number("logprob_entropy/gap_square")
    mean_gap = gap.value if isinstance(gap, Mean) else None
    if not isinstance(gap, Mean) or mean_gap is None or square is None:
        return not_run(
            "entropy by token", get_it="start with --ref-load or --entropy-coef 0.001"
        )
    if (reason := _not_self_sampled(evidence)) is not None:
        return not_run("comparable entropy", get_it=reason)
    count = gap.count
    error = math.sqrt(square / count)
    numbers = {
        "mean_log_prob": mean_log_prob,
        "gap": mean_gap,
        "standard_error": error,
        "tokens": count,
        "threshold_nats": ENTROPY_GAP_NATS.value,
        "threshold_sigmas": ENTROPY_GAP_SIGMAS.value,
    }
    limit = max(ENTROPY_GAP_NATS.value, ENTROPY_GAP_SIGMAS.value * error)
    fault = count >= ENTROPY_GAP_TOKENS.value and not abs(mean_gap) <= limit
    return Finding(
        status=Status.FAIL if fault else Status.PASS,
        summary=(
            f"mean -log_prob {-mean_log_prob:.3g}, entropy gap "
            f"{mean_gap:+.3g} ± {error:.2g} nats"
        ),
        numbers=numbers,
        evidence=_magnitude(mean_log_prob, fault=fault),
        causes=_causes(mean_gap) if fault else (),
    )


def _not_self_sampled(evidence: RolloutEvidence) -> str | None:
    """Why these tokens are not plain samples of the trainer's model, or None."""
    arguments = evidence.arguments
    top_p, top_k = arguments.get("rollout_top_p"), arguments.get("rollout_top_k")
    if top_p is not None and top_p < 1:
        return f"--rollout-top-p {top_p} cuts the distribution that is sampled from"
    if top_k is not None and top_k > 0:
        return f"--rollout-top-k {top_k} cuts the distribution that is sampled from"
    if arguments.get("rollout_temperature") == 0:
        return "--rollout-temperature 0 does not sample"
    for flag in ("load_debug_rollout_data", "load_forge_rollout_data"):
        if arguments.get(flag):
            return f"--{flag.replace('_', '-')}: sampled by weights of another time"
    return None


def _magnitude(mean_log_prob: float, *, fault: bool) -> tuple[Evidence, ...]:
    """The guide's own limit, which alone decides nothing."""
    if -mean_log_prob <= LOG_PROB_MAGNITUDE.value:
        return ()
    text = f"mean -log_prob is {-mean_log_prob:.3g}, above the guide's 1"
    if not fault:
        text += ", and so is the entropy: the model is this unsure, and scored rightly"
    return (Evidence(text=text),)


def _causes(gap: float) -> tuple[Cause, ...]:
    """Which side is sharper narrows the cause."""
    temperature = Cause(
        text="--rollout-temperature differs between engine and trainer",
        confidence="medium",
        confirm="log_probs_vs_rollout: a straight line with a slope other than 1",
    )
    if gap < 0:
        return (temperature,)
    return (
        Cause(
            text="the trainer sees another prompt: chat template, special tokens, or "
            "log-probs shifted by one position",
            confidence="medium",
            confirm="log_probs_vs_rollout, and the tokens of one sample side by side",
        ),
        temperature,
        Cause(
            text="the loss mask covers tokens the model did not sample",
            confidence="low",
            confirm="the masked spans of one sample",
        ),
    )


RULE = Rule(
    id="log_probs_magnitude",
    section="2",
    title="log_probs as large as the entropy says",
    needs=("log_probs", "entropy", "loss_mask"),
    cost="metrics",
    stage="log_probs",
    judge=judge,
)
