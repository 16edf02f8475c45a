"""Samples over replicas: none lost, equal steps, the same step on every layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.controller.partition import share_out
from relax.errors import InternalError


def steps_of(shares):
    """The samples of each step over all replicas."""
    steps = [set() for _ in shares[0].step_sizes]
    for share in shares:
        at = 0
        for number, size in enumerate(share.step_sizes):
            steps[number] |= set(share.rows[at : at + size])
            at += size
        assert at == len(share.rows)
    return steps


@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=60),
    per_step=st.integers(1, 40),
    replicas=st.integers(1, 7),
    balance=st.booleans(),
)
def test_a_step_holds_the_same_samples_on_every_layout(
    lengths, per_step, replicas, balance
):
    shares = share_out(
        lengths, samples_per_step=per_step, replicas=replicas, balance=balance
    )
    alone = share_out(lengths, samples_per_step=per_step, replicas=1, balance=False)

    assert len(shares) == replicas
    assert sorted(row for s in shares for row in s.rows) == list(range(len(lengths)))
    assert steps_of(shares) == steps_of(alone)
    for sizes in zip(*(share.step_sizes for share in shares), strict=True):
        assert max(sizes) - min(sizes) <= 1


def test_neighbours_stay_together_unless_tokens_are_balanced():
    lengths = [100, 90, 10, 10, 80, 70, 5, 5]
    blocks = share_out(lengths, samples_per_step=4, replicas=2, balance=False)
    assert [share.rows for share in blocks] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert [share.step_sizes for share in blocks] == [(2, 2), (2, 2)]

    even = share_out(lengths, samples_per_step=4, replicas=2, balance=True)
    for step in (slice(0, 2), slice(2, 4)):
        tokens = [sum(lengths[row] for row in share.rows[step]) for share in even]
        assert max(tokens) - min(tokens) <= 10
    assert [share.step_sizes for share in even] == [(2, 2), (2, 2)]


def test_nothing_to_share_is_refused():
    with pytest.raises(InternalError, match="0 samples"):
        share_out([], samples_per_step=4, replicas=2, balance=False)
