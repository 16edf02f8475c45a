"""All rules over logs."""

from __future__ import annotations

from relax.triage.log_evidence import LogEvidence
from relax.triage.log_rule import LogRule
from relax.triage.rules import (
    log_collective,
    log_cuda_memory,
    log_detokenizer,
    log_disk,
    log_engine_killed,
    log_engine_watchdog,
    log_first_failure,
    log_illegal_access,
    log_known_errors,
    log_memory_on_resume,
    log_placement,
    log_ray_deaths,
    log_resume_order,
    log_resumed,
    log_warm_up,
    log_weight_update,
)
from relax.triage.verdict import Verdict

LOG_RULES: tuple[LogRule, ...] = (
    log_illegal_access.RULE,
    log_detokenizer.RULE,
    log_engine_watchdog.RULE,
    log_memory_on_resume.RULE,
    log_cuda_memory.RULE,
    log_resume_order.RULE,
    log_weight_update.RULE,
    log_warm_up.RULE,
    log_collective.RULE,
    log_ray_deaths.RULE,
    log_placement.RULE,
    log_disk.RULE,
    *log_known_errors.RULES,
    log_resumed.RULE,
    log_engine_killed.RULE,
    log_first_failure.RULE,
)


def run_log_rules(evidence: LogEvidence) -> list[Verdict]:
    """Runs them all.

    Args:
        evidence: The logs of one run.

    Returns:
        One verdict a rule.
    """
    return [rule.check(evidence) for rule in LOG_RULES]
