"""Many samples at once give what one at a time gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.errors import RecordError
from relax.measure.difference import compare_tokens
from relax.measure.row_difference import Rows, compare_rows

VALUES = st.sampled_from(
    [0.0, -0.0, -1.5, -1.5000001, -0.25, 3.0, np.nan, np.inf, -np.inf]
)


@st.composite
def samples(draw):
    """Masks and two columns of up to six samples; a column may be absent."""
    masks, left, right = [], [], []
    for _ in range(draw(st.integers(0, 6))):
        length = draw(st.integers(0, 5))
        masks.append(np.array(draw(st.lists(st.integers(0, 1), **same(length)))))
        for columns in (left, right):
            values = draw(st.lists(VALUES, **same(length)))
            absent = draw(st.booleans()) and draw(st.booleans())
            columns.append(None if absent else np.array(values, dtype=np.float32))
    return masks, left, right


def same(length: int) -> dict[str, int]:
    return {"min_size": length, "max_size": length}


@given(samples())
def test_rows_are_what_single_samples_are(case):
    masks, left, right = case
    rows = Rows.of(masks)
    found = compare_rows(rows, rows.column(left), rows.column(right))
    for row, (mask, a, b) in enumerate(zip(masks, left, right, strict=True)):
        if a is None or b is None:
            assert found.unequal[row] is None
            assert found.max_abs[row] is None
            assert found.mean_abs[row] is None
            assert found.position[row] is None
            continue
        alone = compare_tokens(a, b, mask)
        assert found.unequal[row] == alone.unequal
        assert found.max_abs[row] == alone.max_abs
        place = alone.max_abs_place
        assert found.position[row] == (None if place is None else place.position)
        if not alone.mean_abs.count:
            assert found.mean_abs[row] is None
        else:
            assert found.mean_abs[row] == pytest.approx(alone.mean_abs.value)


def test_a_column_of_another_length_is_refused():
    rows = Rows.of([np.ones(3), np.ones(2)])
    with pytest.raises(RecordError, match="row 1"):
        rows.column([np.zeros(3), np.zeros(3)])
