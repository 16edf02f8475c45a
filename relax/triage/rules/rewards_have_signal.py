"""Guide, section 1: rewards are as expected, and some group has a contrast.

GRPO learns from differences within a group; when every group's rewards are equal, all
advantages are 0 and the step teaches nothing. One such rollout can be chance, so the
outcome is WARN, never FAIL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relax.measure.rollout_metrics import group_rewards, has_zero_std
from relax.triage.evidence import RolloutEvidence
from relax.triage.rule import Finding, Rule, not_run, vacuous
from relax.triage.verdict import Cause, Evidence, Place, Status


def judge(evidence: RolloutEvidence) -> Finding:
    """Counts the groups whose rewards are all equal."""
    rewards = evidence.columns.get("reward")
    groups = evidence.columns.get("group_index")
    if rewards is None or groups is None:
        return _judge_metrics(evidence)
    missing = sum(reward is None for reward in rewards)
    if missing == len(rewards):
        return not_run("rewards", get_it="no sample has one: look at the reward worker")
    broken = [
        row
        for row, reward in enumerate(rewards)
        if reward is not None and not math.isfinite(reward)
    ]
    if broken:
        index = evidence.sample_indices(len(rewards))[broken[0]]
        return Finding(
            status=Status.NON_FINITE,
            summary=f"{len(broken)} rewards are not finite",
            numbers={"nonfinite": len(broken), "missing": missing},
            where=Place(rollout_id=evidence.rollout_id, sample_index=index),
        )
    by_group = group_rewards(rewards, groups)
    contrasting = {group: r for group, r in by_group.items() if len(r) > 1}
    if not contrasting:
        return vacuous("every group has one sample: nothing to compare it with")
    return _judge_groups(contrasting, missing)


def _judge_groups(by_group: Mapping[int, list[float]], missing: int) -> Finding:
    flat = [rewards for rewards in by_group.values() if has_zero_std(rewards)]
    numbers = {"zero_std": len(flat), "groups": len(by_group), "missing": missing}
    if len(flat) < len(by_group):
        return Finding(
            status=Status.PASS,
            summary=f"zero-std groups {len(flat)} of {len(by_group)}",
            numbers=numbers,
        )
    levels = sorted({rewards[0] for rewards in flat})
    told = ", ".join(f"{level:g}" for level in levels[:5])
    return Finding(
        status=Status.WARN,
        summary=f"all {len(by_group)} groups have equal rewards: no advantage, no step",
        numbers=numbers,
        evidence=(Evidence(text=f"rewards seen: {told}"),),
        causes=_causes(constant=len(levels) == 1),
    )


def _judge_metrics(evidence: RolloutEvidence) -> Finding:
    """Falls back to the share that a log carries."""
    reward = evidence.number("rollout/raw_reward")
    if reward is not None and not math.isfinite(reward):
        return Finding(
            status=Status.NON_FINITE,
            summary=f"mean reward is {reward}",
            numbers={"raw_reward": reward},
        )
    flat = evidence.zero_std_fraction
    if flat is None:
        return not_run("rewards by group", get_it="keep samples (--dump-details)")
    fault = flat == 1
    return Finding(
        status=Status.WARN if fault else Status.PASS,
        summary=f"zero-std groups {flat:.0%}",
        numbers={"zero_std_fraction": flat},
        causes=_causes(constant=False) if fault else (),
    )


def _causes(*, constant: bool) -> tuple[Cause, ...]:
    task = Cause(
        text="the task is too hard or too easy for the model at this temperature",
        confidence="medium",
        confirm="read some responses beside their labels",
    )
    grader = Cause(
        text="the reward function gives one value whatever the answer, or its answer "
        "extraction never matches",
        confidence="medium" if constant else "low",
        confirm="grade one right and one wrong answer by hand",
    )
    return (grader, task) if constant else (task, grader)


RULE = Rule(
    id="rewards_have_signal",
    section="1",
    title="some group's rewards differ",
    needs=("reward", "group_index"),
    cost="metrics",
    stage="generate",
    judge=judge,
)
