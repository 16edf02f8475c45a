"""Failed samples are counted by what they failed of."""

from __future__ import annotations

import pytest

from relax.measure.reduction import Sum
from relax.triage.evidence import RolloutEvidence
from relax.triage.rules import samples_failed
from relax.triage.verdict import Status

CHECK = samples_failed.RULE.check
KEY_ERROR = "the reward raised KeyError: 'answer {}' at /home/me/rewards/maths.py:17"


def rollout(failures, *, healthy=32, metrics=None):
    """Samples 100, 101 …: first the failed ones, then healthy ones."""
    count = len(failures) + healthy
    return RolloutEvidence(
        rollout_id=4,
        metrics=metrics or {},
        columns={
            "sample_index": list(range(100, 100 + count)),
            "status": ["failed"] * len(failures) + ["completed"] * healthy,
            "failure": [*failures, *[None] * healthy],
        },
    )


def test_half_of_the_rewards_raised():
    verdict = CHECK(rollout([KEY_ERROR.format(n) for n in range(32)]))
    assert verdict.status is Status.FAIL
    assert verdict.summary == (
        "failed 32 of 64 samples: 32 × KeyError in the reward (maths.py:17)"
    )
    assert verdict.where.sample_index == 100
    assert "KeyError: 'answer 0' at /home/me/rewards/maths.py:17" in (
        verdict.evidence[0].text
    )
    assert "reward function" in verdict.causes[0].text
    assert verdict.next_command.endswith("--rollout 4 --sample 100")


def test_kinds_are_told_apart_and_the_most_frequent_comes_first():
    engine = "the engine returned (3,) log-probs for 4 tokens"
    longer = "the engine returned (7,) log-probs for 9 tokens"
    verdict = CHECK(rollout(["the reward is None", engine, longer, engine]))
    assert "3 × the engine returned (N,) log-probs for N tokens" in verdict.summary
    assert [place.where.sample_index for place in verdict.evidence] == [101, 100]
    assert "rollout engine" in verdict.causes[0].text
    assert "no finite number" in verdict.causes[1].text


@pytest.mark.parametrize(
    ("failed", "status"),
    [(0, Status.PASS), (1, Status.INFO), (4, Status.WARN), (16, Status.FAIL)],
)
def test_the_share_decides(failed, status):
    failures = ["the reward is nan"] * failed
    assert CHECK(rollout(failures, healthy=64 - failed)).status is status


def test_counts_of_all_samples_win_over_the_samples_at_hand():
    metrics = {"rollout/num_samples": Sum(512), "rollout/num_failed": Sum(300)}
    verdict = CHECK(rollout(["the reward is None"] * 8, healthy=8, metrics=metrics))
    assert verdict.summary.startswith("failed 300 of 512 samples")


def test_without_samples_nothing_is_claimed():
    assert CHECK(RolloutEvidence(rollout_id=0)).status is Status.NOT_RUN
    assert CHECK(rollout([], healthy=0)).status is Status.VACUOUS


def test_an_aborted_or_truncated_sample_has_not_failed():
    evidence = rollout([], healthy=2)
    evidence.columns["status"][:] = ["aborted", "truncated"]
    assert CHECK(evidence).status is Status.PASS
