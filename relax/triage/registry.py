"""All rules, and which of them are due at a stage."""

from __future__ import annotations

from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Rule, Stage
from relax.triage.rules import (
    first_step_kl,
    grad_norm,
    log_probs_equal_ref,
    log_probs_magnitude,
    log_probs_vs_rollout,
    ppo_kl,
    repetition,
    responses_coherent,
    rewards_have_signal,
    samples_failed,
    weights_arrived,
)
from relax.triage.verdict import Verdict

RULES: tuple[Rule, ...] = (
    weights_arrived.RULE,
    samples_failed.RULE,
    responses_coherent.RULE,
    repetition.RULE,
    rewards_have_signal.RULE,
    log_probs_equal_ref.RULE,
    log_probs_magnitude.RULE,
    log_probs_vs_rollout.RULE,
    first_step_kl.RULE,
    grad_norm.RULE,
    ppo_kl.RULE,
)


def rules_due(stage: Stage) -> tuple[Rule, ...]:
    """The rules whose data are complete when a stage has finished."""
    return tuple(rule for rule in RULES if rule.stage == stage)


def run_rules(evidence: RolloutEvidence, stage: Stage | None = None) -> list[Verdict]:
    """Runs the rules due at a stage.

    Args:
        evidence: The rollout.
        stage: The stage that has just finished; None: every rule, as for a dump.

    Returns:
        One verdict a rule, in the order of the debugging guide.
    """
    rules = RULES if stage is None else rules_due(stage)
    return [rule.check(evidence) for rule in rules]
