"""The sample: upstream's fields there and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.engine.rollout.sample import Sample, SampleStatus, sorted_groups
from relax.errors import RecordError

PLAIN = st.one_of(st.none(), st.integers(), st.text(max_size=5))
SAMPLES = st.builds(
    Sample,
    group_index=st.none() | st.integers(0, 9),
    index=st.none() | st.integers(0, 99),
    prompt=st.text(max_size=9),
    tokens=st.lists(st.integers(0, 9), max_size=5),
    response=st.text(max_size=9),
    label=st.none() | st.text(max_size=5),
    reward=st.none() | st.floats(allow_nan=False) | st.just({"score": 1.0}),
    loss_mask=st.none() | st.lists(st.integers(0, 1), max_size=5),
    rollout_log_probs=st.none() | st.lists(st.floats(-9, 0, width=32), max_size=5),
    status=st.sampled_from(SampleStatus),
    metadata=st.dictionaries(st.text(max_size=3), PLAIN, max_size=2),
    extra=st.dictionaries(st.sampled_from(["session_id", "spec_info"]), PLAIN),
)


@given(SAMPLES)
def test_a_sample_is_the_same_after_json(sample):
    row = json.loads(json.dumps(sample.to_dict()))
    assert Sample.from_dict(row).to_dict() == sample.to_dict()
    assert row["status"] == sample.status.value
    assert "extra" not in row


def test_arrays_become_lists_and_absent_stays_absent():
    array = np.array([-0.5, np.nan], dtype=np.float32)
    row = Sample(rollout_log_probs=array).to_dict()
    assert row["rollout_log_probs"][0] == -0.5
    assert np.isnan(row["rollout_log_probs"][1])
    assert Sample().to_dict()["rollout_log_probs"] is None


@pytest.mark.parametrize("row", [{}, {"status": "lost"}])
def test_a_status_is_required(row):
    with pytest.raises(RecordError, match="completed"):
        Sample.from_dict({"index": 3, **row})


def test_scalar_rewards():
    assert Sample().scalar_reward(None) is None
    assert Sample(reward=0.0).scalar_reward(None) == 0.0
    assert Sample(reward={"score": 2}).scalar_reward("score") == 2.0
    for key in (None, "other"):
        with pytest.raises(RecordError, match="--reward-key"):
            Sample(reward={"score": 2}).scalar_reward(key)


def test_failing_leaves_no_reward_and_no_mask():
    sample = Sample(reward=1.0, loss_mask=[1])
    sample.fail("why")
    assert (sample.status, sample.failure) == (SampleStatus.FAILED, "why")
    assert (sample.reward, sample.loss_mask) == (None, None)


def test_groups_are_sorted_by_index():
    groups = [[Sample(index=5), Sample(index=4)], [Sample(index=1)], []]
    assert [[s.index for s in g] for g in sorted_groups(groups)] == [[1], [4, 5]]
