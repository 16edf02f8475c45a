"""A packed column comes back as it was: absent, empty and non-finite included."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relax.backends.training import PackedColumn

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
columns = st.lists(st.one_of(st.none(), st.lists(floats, max_size=7)))


@given(columns)
def test_unpack_undoes_pack(column):
    arrays = [None if c is None else np.array(c, dtype=np.float32) for c in column]
    back = PackedColumn.pack(arrays).unpack()
    assert len(back) == len(arrays)
    for before, after in zip(arrays, back, strict=True):
        assert (before is None) == (after is None)
        if before is not None:
            assert before.tobytes() == after.tobytes()
