"""What decoding gives is what was dumped: any value, tensor, piece and layout."""

from __future__ import annotations

import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from test_dump_values import ATOMS, SHAPES, TEXTS, same

from relax.dump.decode import tensors
from relax.dump.decode.archive import Archive
from relax.dump.decode.unpickle import DataUnpickler
from relax.dump.readers import values
from relax.dump.readers.zigzag import piece_length, put_together, spans

HASHABLE = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(
    ATOMS | st.sets(HASHABLE, max_size=3) | st.binary(max_size=5).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=25,
)
DTYPES = [getattr(torch, name) for name in tensors.DTYPES]
CODES = ["f8", "f4", "f2", "i8", "u2", "?", "c8", ">f4", ">i2", "U3"]


def decoded(content: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.pt"
        path.write_bytes(content)
        with Archive(path) as archive, archive.pickle.open() as source:
            return resolved(DataUnpickler(source, archive).load())


def resolved(value: Any) -> Any:
    """Tensors read while their file is open."""
    if isinstance(value, list):
        return [resolved(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") else value


@given(VALUES, st.integers(2, 5))
@example({"shared": [[]] * 3}, 2)
def test_any_value_comes_back(value, protocol):
    assert same(decoded(pickle.dumps([value], protocol))[0], value)


@given(
    st.sampled_from(DTYPES),
    SHAPES,
    st.sampled_from(["whole", "transposed", "sliced", "expanded"]),
)
def test_any_tensor_comes_back(dtype, shape, view):
    count = int(np.prod(shape))
    tensor = torch.arange(count + 3).to(dtype)[2 : count + 2].reshape(shape)
    if view == "transposed":
        tensor = tensor.permute(list(reversed(range(tensor.ndim))))
    elif view == "sliced" and tensor.ndim:
        tensor = tensor[::2]
    elif view == "expanded":
        tensor = tensor.unsqueeze(0).expand(3, *tensor.shape)
    packed = io.BytesIO()
    torch.save([tensor], packed)
    (found,) = decoded(packed.getvalue())
    wanted = tensor.float() if dtype is torch.bfloat16 else tensor
    assert found.shape == tuple(wanted.shape)
    assert found.dtype == wanted.numpy().dtype
    assert (found == wanted.numpy()).all()


@given(SHAPES, st.sampled_from(CODES), st.integers(2, 5))
def test_any_array_comes_back(shape, code, protocol):
    array = np.arange(int(np.prod(shape))).astype(code).reshape(shape)
    for given_array in (array, np.asfortranarray(array), array.T):
        (found,) = decoded(pickle.dumps([given_array], protocol))
        assert found.shape == given_array.shape
        assert (found == given_array).all()
    if array.size:
        (scalar,) = decoded(pickle.dumps([array.reshape(-1)[-1]], protocol))
        assert scalar == array.reshape(-1)[-1].item()


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.sampled_from(["list", "tuple"]))
def test_ids_are_exact(numbers, kind):
    found = values.ids(numbers if kind == "list" else tuple(numbers))
    assert found is not None
    assert found.tolist() == numbers


@given(st.lists(st.one_of(st.integers(-(2**40), 2**40), st.floats(), st.none(), TEXTS)))
def test_ids_are_ids_or_malformed(mixed):
    good = all(type(v) is int and -(2**31) <= v < 2**31 for v in mixed)
    if good:
        assert values.ids(mixed) is not None
    else:
        with pytest.raises(values.Malformed):
            values.ids(mixed)


@given(
    prompt=st.integers(1, 60),
    response=st.integers(0, 60),
    cp_size=st.integers(1, 6),
    padding=st.none() | st.integers(0, 40),
    missing=st.integers(0, 5),
)
def test_pieces_are_the_column(prompt, response, cp_size, padding, missing):
    total = prompt + response
    padded = None if padding is None else total + padding
    column = np.arange(response, dtype=np.float32)
    places = [
        spans(
            total=total,
            response=response,
            cp_rank=rank,
            cp_size=cp_size,
            padded=padded,
        )
        for rank in range(cp_size)
    ]
    held = [
        np.concatenate([column[first:end] for first, end in both]) for both in places
    ]
    assert sum(map(piece_length, places)) == response
    pieces = dict(enumerate(held))
    whole = put_together(pieces, places, response=response)
    assert whole is not None
    assert whole.tolist() == column.tolist()
    lost = pieces.pop(missing % cp_size)
    without = put_together(pieces, places, response=response)
    assert (without is None) == (lost.size > 0)
