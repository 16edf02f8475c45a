"""When a run dumps a step by itself."""

from __future__ import annotations

import math

import pytest

from relax.arguments.dump_on import fired, parse_dump_trigger
from relax.errors import ArgumentError


@pytest.mark.parametrize(
    "text", ["verdict:FAIL", "verdict:NON_FINITE", "nonfinite", "grad_norm > 10"]
)
def test_a_trigger_reads_back_equal(text):
    trigger = parse_dump_trigger(text)
    assert parse_dump_trigger(str(trigger)) == trigger


@pytest.mark.parametrize("text", ["", "start", "3:train", "grad_norm > nan", "x"])
def test_what_is_no_trigger_is_refused_with_the_flag(text):
    with pytest.raises(ArgumentError, match="--dump-on"):
        parse_dump_trigger(text)


@pytest.mark.parametrize(
    ("text", "metrics", "verdicts", "reason"),
    [
        ("grad_norm > 10", {"train/grad_norm": 11.0}, (), "train/grad_norm is 11"),
        ("grad_norm > 10", {"train/grad_norm": 10.0}, (), ""),
        ("grad_norm > 10", {"train/grad_norm": math.nan}, (), "train/grad_norm is nan"),
        ("grad_norm > 10", {"train/grad_norm": None}, (), ""),
        ("nonfinite", {"train/loss": math.inf}, (), "train/loss is inf"),
        ("nonfinite", {"train/loss": 1.0, "rollout/kl": None}, (), ""),
        ("nonfinite", {"nonfinite/log_probs": 2}, (), "nonfinite/log_probs is 2"),
        ("nonfinite", {"rollout/reward_nonfinite": 0}, (), ""),
        ("nonfinite", {}, ("NON_FINITE",), "verdict:NON_FINITE"),
        ("verdict:FAIL", {}, ("PASS", "FAIL"), "verdict:FAIL"),
        ("verdict:FAIL", {"train/loss": math.nan}, ("PASS", "WARN"), ""),
    ],
)
def test_a_trigger_fires_when_it_should(text, metrics, verdicts, reason):
    found = fired([parse_dump_trigger(text)], metrics=metrics, verdicts=verdicts)
    assert found.endswith(reason)
    assert bool(found) == bool(reason)


def test_the_first_reason_is_given():
    triggers = [parse_dump_trigger(text) for text in ("verdict:FAIL", "nonfinite")]
    assert fired(triggers, metrics={"a": math.nan}) == "nonfinite: a is nan"
