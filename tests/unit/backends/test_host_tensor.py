"""Weights between processes: same bits, same type, no copy where numpy has the type."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from relax.backends.fingerprint import fingerprint_tensors
from relax.backends.host_tensor import bucket_from_host, from_host, to_host


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_tensor_arrives_as_it_was(dtype):
    sent = torch.randn(3, 5).to(dtype)
    sent[0, 0] = float("nan")
    value = pickle.loads(pickle.dumps(to_host(sent)))
    arrived = torch.as_tensor(from_host(value))
    assert arrived.dtype == dtype
    assert fingerprint_tensors([("a", arrived)]) == fingerprint_tensors([("a", sent)])


def test_float32_is_not_copied():
    sent = torch.zeros(4)
    value = to_host(sent)
    sent[0] = 7
    assert value[0] == 7
    assert from_host(value) is value


def test_read_only_bits_are_taken():
    value = to_host(torch.ones(2, dtype=torch.bfloat16))
    value.bits.flags.writeable = False
    (arrived,) = bucket_from_host({"a": value}).values()
    assert arrived.dtype == torch.bfloat16
    np.testing.assert_array_equal(arrived.float().numpy(), [1, 1])
