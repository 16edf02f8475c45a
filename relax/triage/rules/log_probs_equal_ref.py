"""Guide, check 2: before any training, log_probs equals ref_log_probs exactly.

Exactly means token by token: the same weights through the same kernels give the same
bits, so the threshold is 0 unequal tokens. Two means that agree prove little, since
errors of opposite sign cancel; where a log holds only means, agreement is INFO.
"""

from __future__ import annotations

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, non_finite, not_run, vacuous
from relax.triage.thresholds import FIRST_STEP_KL, KERNEL_NOISE, for_precision
from relax.triage.verdict import Cause, Evidence, Status

_NEEDED = ("log_probs", "ref_log_probs")


def judge(evidence: RolloutEvidence) -> Finding:
    """Counts the tokens at which policy and reference differ."""
    if (broken := non_finite(evidence, *_NEEDED)) is not None:
        return broken
    unequal = evidence.number("logprob_ref/unequal")
    if unequal is None:
        return _judge_means(evidence)
    tokens = evidence.number("logprob_ref/tokens")
    if tokens == 0:
        return vacuous("every token is masked: nothing was compared", {"tokens": 0})
    max_abs = evidence.number("logprob_ref/max_abs")
    known = {"unequal": unequal, "tokens": tokens, "max_abs": max_abs}
    numbers = {name: value for name, value in known.items() if value is not None}
    of_all = "" if tokens is None else f" of {tokens:.0f}"
    counted = f"unequal {unequal:.0f}{of_all} tokens"
    if not evidence.expects_reference_equality:
        return _judge_after_training(evidence, counted, numbers)
    if unequal == 0:
        return Finding(status=Status.PASS, summary=counted, numbers=numbers)
    repeated = _told_by_repetition(evidence)
    difference = evidence.compare(*_NEEDED)
    where = evidence.at(difference.first_unequal if difference else None)
    return Finding(
        status=Status.FAIL,
        summary=counted + ("" if max_abs is None else f", max |Δ| {max_abs:.3g}"),
        numbers=numbers,
        where=where,
        evidence=(Evidence(text="first unequal token", where=where), *repeated),
        causes=_causes(evidence, max_abs),
    )


def _judge_means(evidence: RolloutEvidence) -> Finding:
    """Falls back to the two means of a log that carries nothing finer."""
    ours = evidence.number("rollout/log_probs")
    theirs = evidence.number("rollout/ref_log_probs")
    if theirs is None:
        return not_run(
            "ref_log_probs", get_it="start with --ref-load (the first rollout suffices)"
        )
    if ours is None:
        return not_run(
            "log_probs", get_it="let the log-prob pass run (--dump-details keeps it)"
        )
    numbers = {
        "log_probs": ours,
        "ref_log_probs": theirs,
        "threshold": FIRST_STEP_KL.value,
    }
    gap = abs(ours - theirs)
    if not evidence.expects_reference_equality:
        return Finding(
            status=Status.INFO,
            summary=f"means differ by {gap:.3g}; equality is not due here",
            numbers=numbers,
        )
    if gap <= FIRST_STEP_KL.value:
        return Finding(
            status=Status.INFO,
            summary="the means agree; whether every token does is not known from a log",
            numbers=numbers,
        )
    return Finding(
        status=Status.NON_FINITE if gap != gap else Status.FAIL,
        summary=f"mean log_probs {ours:.6g}, mean ref_log_probs {theirs:.6g}",
        numbers=numbers,
        causes=_causes(evidence, gap),
    )


def _judge_after_training(
    evidence: RolloutEvidence, counted: str, numbers: dict[str, float]
) -> Finding:
    """Once the weights differ, a difference is training and its absence a question."""
    if numbers["unequal"]:
        return Finding(
            status=Status.INFO,
            summary=f"{counted}: the policy has moved",
            numbers=numbers,
        )
    return Finding(
        status=Status.INFO,
        summary=f"{counted}, although the weights should differ by now",
        numbers=numbers,
        causes=(
            Cause(
                text="nothing was learnt yet: learning rate 0 in warm-up, no reward "
                "signal, or steps skipped",
                confidence="medium",
                confirm="train/lr-pg_0, train/grad_norm and rewards_have_signal",
            ),
        ),
    )


def _told_by_repetition(evidence: RolloutEvidence) -> tuple[Evidence, ...]:
    again = evidence.repeated_unequal
    if again is None:
        return ()
    told = f"both passes made again: {again} tokens differ from the first time"
    return (Evidence(text=told),)


def _looks_like_kernels(evidence: RolloutEvidence, size: float | None) -> bool:
    """Whether equal weights may still give these numbers.

    Passes that were made again say so; else it is only the size that speaks.
    """
    again = evidence.repeated_unequal
    if again is not None:
        return again > 0
    noise = for_precision(KERNEL_NOISE, evidence.precision).value
    return size is not None and size <= noise


def _causes(evidence: RolloutEvidence, size: float | None) -> tuple[Cause, ...]:
    """Passes that do not repeat are kernels; large differences are other weights."""
    is_noise = _looks_like_kernels(evidence, size)
    kernels = Cause(
        text="a nondeterministic kernel (fused attention under context parallelism)",
        confidence="high" if is_noise else "low",
        confirm="run both passes again; with --attention-backend flash the count is 0",
    )
    weights = Cause(
        text="the reference holds other weights than the policy",
        confidence="low" if is_noise else "high",
        confirm="compare --ref-load with --load and --hf-checkpoint",
    )
    fusion = Cause(
        text="an MoE model without --moe-permute-fusion, or routed differently",
        confidence="medium",
        confirm="start with --moe-permute-fusion",
    )
    ranked = [kernels, weights] if kernels.confidence == "high" else [weights, kernels]
    if evidence.arguments.get("num_moe_experts"):
        ranked.insert(1, fusion)
    return tuple(ranked)


RULE = Rule(
    id="log_probs_equal_ref",
    section="2",
    title="log_probs equals ref_log_probs before training",
    needs=("log_probs", "ref_log_probs", "loss_mask"),
    cost="metrics",
    stage="log_probs",
    judge=judge,
)
