"""Any plain value comes back from a dump as it was, by both unpicklers of torch."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.dump.write import write_rollout_dump, write_train_dump

# Lone surrogates too: an engine's decoder makes them.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | TEXTS
    | st.binary(max_size=10)
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=25,
)
SAMPLES = st.lists(st.dictionaries(TEXTS, VALUES, max_size=5), max_size=4)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def same(one: Any, other: Any) -> bool:
    """Equal in type and bits: NaN is NaN, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (
            math.isnan(one)
            if math.isnan(other)
            else (one, math.copysign(1, one)) == (other, math.copysign(1, other))
        )
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=True) if len(one) == len(other) else [(0, 1)]
        return all(same(a, b) for a, b in pairs)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


@given(SAMPLES)
def test_samples_come_back(samples):
    with tempfile.TemporaryDirectory() as folder:
        path = write_rollout_dump(Path(folder) / "0.pt", samples, rollout_id=0).path
        for restricted in (True, False):
            read = torch.load(path, weights_only=restricted)
            assert same(read, {"rollout_id": 0, "samples": samples})


@given(st.lists(st.tuples(SHAPES, st.sampled_from(["float32", "int64", "bool"]))))
def test_arrays_come_back(kinds):
    draw = np.random.default_rng(len(kinds))
    arrays = [draw.integers(0, 9, size=shape).astype(dtype) for shape, dtype in kinds]
    with tempfile.TemporaryDirectory() as folder:
        path = write_train_dump(
            Path(folder) / "0_0.pt", {"c": arrays}, rollout_id=0, rank=0
        ).path
        for restricted in (True, False):
            read = torch.load(path, weights_only=restricted)["rollout_data"]["c"]
            assert len(read) == len(arrays)
            for tensor, array in zip(read, arrays, strict=True):
                assert tensor.shape == array.shape
                assert tensor.numpy().dtype == array.dtype
                assert np.array_equal(tensor.numpy(), array)
