"""The fingerprint of weights: what it depends on and what it does not."""

from __future__ import annotations

import random

import pytest
import torch

from relax.backends.fingerprint import EMBEDDING, LM_HEAD, Fingerprint
from relax.backends.fingerprint import fingerprint_tensors as fingerprint
from relax.errors import InternalError


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    shapes = {EMBEDDING: (6, 4), "a.weight": (4, 4), "a.bias": (4,), "scale": ()}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def test_order_and_buckets_do_not_matter(tensors):
    items = list(tensors.items())
    expected = fingerprint(items)
    for seed in range(5):
        random.Random(seed).shuffle(items)
        collected = Fingerprint()
        for name, tensor in items:
            collected.add(name, tensor)
        assert collected.hexdigest() == expected
    assert len(expected) == 64


def test_strides_do_not_matter_and_shapes_do(tensors):
    expected = fingerprint(tensors.items())
    weight = tensors["a.weight"]
    tensors["a.weight"] = weight.t().contiguous().t()
    assert fingerprint(tensors.items()) == expected
    tensors["a.weight"] = weight.t()
    assert fingerprint(tensors.items()) != expected
    tensors["a.weight"] = weight.reshape(2, 8)
    assert fingerprint(tensors.items()) != expected


def test_one_ulp_name_type_and_absence_show(tensors):
    seen = {fingerprint(tensors.items())}
    moved = tensors["a.bias"].clone()
    moved[2] = torch.nextafter(moved[2], torch.tensor(9.0))
    seen.add(fingerprint({**tensors, "a.bias": moved}.items()))
    seen.add(fingerprint({**tensors, "a.bias": moved.double()}.items()))
    seen.add(fingerprint({**tensors, "a.bias": moved.bfloat16()}.items()))
    seen.add(fingerprint({**tensors, "b.bias": moved}.items()))
    seen.add(fingerprint({**tensors, "nan": torch.tensor(float("nan"))}.items()))
    del tensors["a.bias"]
    seen.add(fingerprint(tensors.items()))
    assert len(seen) == 7


def test_a_tied_output_layer_is_left_out(tensors):
    expected = fingerprint(tensors.items())
    tied = {**tensors, LM_HEAD: tensors[EMBEDDING].clone()}
    assert fingerprint(tied.items()) == expected
    tied[LM_HEAD][0, 0] += 1
    assert fingerprint(tied.items()) != expected


def test_a_name_that_comes_twice_is_a_defect(tensors):
    with pytest.raises(InternalError, match=r"a\.bias"):
        fingerprint([*tensors.items(), ("a.bias", tensors["a.bias"])])
