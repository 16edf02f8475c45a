"""Cutting samples into steps and micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relax.arguments.groups import BatchSettings
from relax.backends.megatron.step.batch import (
    TrainSample,
    build_micro_batch,
    equal_steps,
    rectangle_of,
    split_micro_batches,
    split_steps,
)
from relax.errors import ArgumentError, InternalError

CPU = torch.device("cpu")


def sample(index: int, *, total: int, response: int) -> TrainSample:
    return TrainSample(
        sample_index=index,
        tokens=np.arange(1, total + 1) + 100 * index,
        response_length=response,
        loss_mask=np.ones(response, np.int8),
        rollout_log_probs=None,
        reward=0.0,
        group_index=0,
    )


def batch_settings(**changes: object) -> BatchSettings:
    return BatchSettings(rollout_batch_size=1, global_batch_size=1, **changes)


def test_steps_in_order_with_a_smaller_last_one():
    assert equal_steps(7, samples_per_step=3) == [3, 3, 1]
    steps = split_steps(7, step_sizes=[3, 0, 4])
    assert steps == [range(3), range(3, 3), range(3, 7)]
    with pytest.raises(InternalError, match="do not hold 7"):
        split_steps(7, step_sizes=[3, 3])


def test_a_step_without_samples_is_one_row_of_padding():
    cut = split_micro_batches(
        [], range(0), settings=batch_settings(micro_batch_size=2), max_tokens=None
    )
    assert cut == [()]
    rectangle = rectangle_of([], (), multiple=4, packed=False)
    batch = build_micro_batch([], (), number=0, rectangle=rectangle, device=CPU)
    assert batch.tokens_BS.tolist() == [[0, 0, 0, 0]]
    assert batch.targets_N.numel() == 0
    assert batch.placements(rank=0) == []


def test_fixed_micro_batches_keep_the_order():
    cut = split_micro_batches(
        [], range(4, 9), settings=batch_settings(micro_batch_size=2), max_tokens=None
    )
    assert cut == [(4, 5), (6, 7), (8,)]


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 40), min_size=1, max_size=30),
    max_tokens=st.integers(1, 120),
)
def test_dynamic_micro_batches_stay_within_their_tokens(lengths, max_tokens):
    samples = [sample(i, total=n, response=1) for i, n in enumerate(lengths)]
    cut = split_micro_batches(
        samples,
        range(len(samples)),
        settings=batch_settings(use_dynamic_batch_size=True),
        max_tokens=max_tokens,
    )
    assert sorted(row for rows in cut for row in rows) == list(range(len(samples)))
    for rows in cut:
        rectangle = len(rows) * max(lengths[row] for row in rows)
        assert rectangle <= max_tokens or len(rows) == 1


def test_dynamic_needs_a_limit():
    with pytest.raises(ArgumentError, match="--max-tokens-per-gpu"):
        split_micro_batches(
            [],
            range(1),
            settings=batch_settings(use_dynamic_batch_size=True),
            max_tokens=None,
        )


def test_a_micro_batch_knows_what_predicts_what():
    samples = [
        sample(0, total=5, response=2),
        sample(1, total=3, response=0),
        sample(2, total=4, response=3),
    ]
    rows = (2, 1, 0)
    rectangle = rectangle_of(samples, rows, multiple=2, packed=False)
    batch = build_micro_batch(samples, rows, number=7, rectangle=rectangle, device=CPU)
    assert batch.tokens_BS.tolist() == [
        [201, 202, 203, 204, 0, 0],
        [101, 102, 103, 0, 0, 0],
        [1, 2, 3, 4, 5, 0],
    ]
    assert batch.targets_N.tolist() == [202, 203, 204, 4, 5]
    before = batch.tokens_BS[batch.response_rows_N, batch.response_sources_N]
    assert before.tolist() == [201, 202, 203, 3, 4]
    assert batch.response_lengths == [3, 0, 2]
    assert [
        (p.sample_index, p.micro_batch, p.rank, p.place, p.padded_length)
        for p in batch.placements(rank=3)
    ] == [(2, 7, 3, 0, 6), (1, 7, 3, 1, 6), (0, 7, 3, 2, 6)]


def test_packed_samples_lie_one_after_the_other():
    samples = [
        sample(0, total=5, response=2),
        sample(1, total=3, response=0),
        sample(2, total=4, response=3),
    ]
    rectangle = rectangle_of(samples, (2, 1, 0), multiple=8, packed=True)
    assert (rectangle.rows, rectangle.length) == (1, 16)
    batch = build_micro_batch(
        samples, (2, 1, 0), number=0, rectangle=rectangle, device=CPU
    )
    assert batch.tokens_BS.tolist() == [
        [201, 202, 203, 204, 101, 102, 103, 1, 2, 3, 4, 5, 0, 0, 0, 0]
    ]
    assert batch.positions_BS[0, :12].tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]
    assert batch.segments.tolist() == [0, 4, 7, 12, 16]
    assert batch.targets_N.tolist() == [202, 203, 204, 4, 5]
    before = batch.tokens_BS[batch.response_rows_N, batch.response_sources_N]
    assert before.tolist() == [201, 202, 203, 3, 4]


def test_packed_dynamic_micro_batches_count_real_tokens():
    samples = [sample(i, total=n, response=1) for i, n in enumerate((9, 2, 2, 2, 5))]
    cut = split_micro_batches(
        samples,
        range(5),
        settings=batch_settings(use_dynamic_batch_size=True, qkv_format="thd"),
        max_tokens=10,
    )
    assert cut == [(0,), (4, 1, 2), (3,)]
