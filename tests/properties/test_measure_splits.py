"""Any split of tokens and samples over parts gives the same reductions."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relax.measure.difference import TokenDifference, compare_tokens, ulp_distance
from relax.measure.logprob_metrics import logprob_metrics
from relax.measure.nonfinite import NonFinite, TokenPlace, count_nonfinite
from relax.measure.reduction import (
    Gauge,
    Max,
    Mean,
    Min,
    Sum,
    decode_metrics,
    encode_metrics,
    merge_metrics,
)

# Exactly representable in float64 sums of this many, so that equality can be asked for.
numbers = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.5, 3.0, math.nan, math.inf])
finite = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.5, 3.0])


@st.composite
def samples(draw, elements=numbers):
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(0, 8))
        column = st.lists(elements, min_size=size, max_size=size)
        mask = st.lists(st.integers(0, 1), min_size=size, max_size=size)
        rows.append(
            (
                np.array(draw(column), dtype=np.float32),
                np.array(draw(column), dtype=np.float32),
                np.array(draw(mask), dtype=np.int8),
            )
        )
    return rows


def naive_difference(rows) -> dict[str, object]:
    """The same statistics, one token at a time in plain Python."""
    unequal, worst, total, pairs = [], None, 0.0, 0
    for sample, (a, b, mask) in enumerate(rows):
        for position, keep in enumerate(mask):
            x, y = float(a[position]), float(b[position])
            if not keep:
                continue
            if not (x == y or (math.isnan(x) and math.isnan(y))):
                unequal.append((sample, position))
            if math.isfinite(x) and math.isfinite(y):
                pairs, total = pairs + 1, total + abs(x - y)
                worst = abs(x - y) if worst is None else max(worst, abs(x - y))
    return {
        "unequal": len(unequal),
        "first": unequal[0] if unequal else None,
        "worst": worst,
        "mean": Mean(total, pairs),
    }


@given(samples(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_difference_merges_in_any_order_to_the_plain_count(rows, random):
    parts = [
        compare_tokens(a, b, mask, sample_index=index)
        for index, (a, b, mask) in enumerate(rows)
    ]
    together = reduce(TokenDifference.merge, parts)
    random.shuffle(parts)
    assert reduce(TokenDifference.merge, parts) == together
    expected = naive_difference(rows)
    place = together.first_unequal
    assert together.unequal == expected["unequal"]
    assert (place and (place.sample_index, place.position)) == expected["first"]
    assert together.max_abs == expected["worst"]
    assert together.mean_abs == expected["mean"]
    assert together.tokens + together.masked == sum(row[0].size for row in rows)


@given(samples(elements=finite), st.data())
@settings(max_examples=60, deadline=None)
def test_metrics_of_parts_merge_to_metrics_of_the_whole(rows, data):
    def metrics(some):
        columns = {
            "log_probs": [a for a, _, _ in some],
            "ref_log_probs": [b for _, b, _ in some],
            "entropy": [b for _, b, _ in some],
        }
        found = logprob_metrics(columns, [mask for _, _, mask in some])
        return {k: v for k, v in found.items() if not isinstance(v, Gauge)}

    cut = data.draw(st.integers(1, len(rows)))
    merged = merge_metrics([metrics(rows[:cut]), metrics(rows[cut:])])
    whole = metrics(rows)
    assert merged.keys() == whole.keys()
    for key, reduction in whole.items():
        assert merged[key].value == pytest.approx(reduction.value, abs=1e-12), key


@given(samples(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_nonfinite_counts_merge(rows, random):
    parts = [
        count_nonfinite(a, mask=mask, sample_index=index)
        for index, (a, _, mask) in enumerate(rows)
    ]
    together = reduce(NonFinite.merge, parts)
    random.shuffle(parts)
    assert reduce(NonFinite.merge, parts) == together
    bad = [
        TokenPlace(index, position)
        for index, (a, _, mask) in enumerate(rows)
        for position in range(a.size)
        if mask[position] and not math.isfinite(a[position])
    ]
    assert together.total == len(bad)
    assert together.first == (bad[0] if bad else None)


float32s = hnp.arrays(
    np.float32,
    st.integers(1, 20),
    elements=st.floats(
        width=32, allow_nan=False, allow_infinity=False, max_value=2.0**100
    ),
)


@given(float32s, st.integers(0, 30))
@settings(max_examples=80, deadline=None)
def test_ulp_distance_counts_nextafter_steps(values, steps):
    moved = values
    for _ in range(steps):
        moved = np.nextafter(moved, np.float32(np.inf))
    # nextafter passes a zero once; both zeros are one number here as there.
    assert (ulp_distance(values, moved) == steps).all()
    assert (ulp_distance(moved, values) == steps).all()


def test_both_zeros_are_one_number():
    a, b = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert ulp_distance(a, b).tolist() == [0]
    assert compare_tokens(a, b).unequal == 0


any_float = st.floats(allow_nan=True, allow_infinity=True)
reductions = st.one_of(
    st.builds(Sum, any_float),
    st.builds(Mean, any_float, st.floats(0, 1e9)),
    st.builds(Max, any_float),
    st.builds(Min, any_float),
    st.builds(Gauge, any_float),
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), reductions, max_size=5))
@settings(max_examples=60, deadline=None)
def test_encoded_metrics_come_back_equal(metrics):
    # repr tells NaN from NaN as equal, which == does not.
    assert repr(decode_metrics(encode_metrics(metrics))) == repr(metrics)
