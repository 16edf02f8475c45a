"""Rewards that raise in a real run: a verdict with numbers, and lines of the log."""

from __future__ import annotations

import pytest

from relax.events.types import RunFailed, RunFinished, VerdictGiven
from relax.triage.verdict import Status, Verdict
from tests.process.runs import demo_without_reward, started

pytestmark = pytest.mark.engine


@pytest.fixture
def without_reward(tmp_path):
    return demo_without_reward(tmp_path)


ONE_ROLLOUT = ("--num-rollout", "1", "--debug-rollout-only", "--custom-rm-path")


def verdict(run):
    given = (Verdict.from_json(given.verdict) for given in run.of(VerdictGiven))
    (found,) = [v for v in given if v.rule == "samples_failed"]
    return found


def test_half_of_the_rewards_raise_and_the_run_goes_on(tmp_path, without_reward):
    hook = "tests.process.raising_rewards.every_second"
    with started(tmp_path / "run", *ONE_ROLLOUT, hook, config=without_reward) as run:
        assert run.end(seconds=120) == 0
        assert run.of(RunFinished)[0].why == "done"
        found = verdict(run)
        assert found.status is Status.FAIL
        assert found.summary.startswith(
            "failed 32 of 64 samples: 32 × KeyError in the reward (raising_rewards.py:"
        )
        assert "KeyError: 'answer'" in found.evidence[0].text
        assert found.where.sample_index == 1


def test_all_rewards_raise_and_the_verdict_comes_before_the_failure(
    tmp_path, without_reward
):
    hook = "tests.process.raising_rewards.every_one"
    with started(tmp_path / "run", *ONE_ROLLOUT, hook, config=without_reward) as run:
        assert run.end(seconds=120) != 0
        assert "ZeroDivisionError" in run.of(RunFailed)[0].what
        assert "64 of 64" in verdict(run).summary
        payloads = [event.payload for event in run.poll()]
        places = [
            next(i for i, p in enumerate(payloads) if isinstance(p, kind))
            for kind in (VerdictGiven, RunFailed)
        ]
        assert places == sorted(places)
