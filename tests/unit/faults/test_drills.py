"""Drills on the way of the weights: what arrives, update by update."""

from __future__ import annotations

import pytest
import torch

from relax.backends.fingerprint import Fingerprint
from relax.errors import ArgumentError
from relax.faults.drills import ONE_TENSOR, Drill
from relax.triage.weights_seen import difference

pytestmark = pytest.mark.engine


def weights(version):
    generator = torch.Generator().manual_seed(version)
    return {
        name: torch.randn(shape, generator=generator)
        for name, shape in (("embed", (5, 4)), ("q", (4, 4)), ("o", (4, 4)))
    }


def updates(drill, count):
    """Per update: the names that differ between what was meant and what arrives."""
    for version in range(count):
        meant = weights(version)
        arrives = drill.sent(dict(meant))
        drill.after_sending()
        yield difference("engine", "trainer", digests(arrives), digests(meant)).names


def digests(tensors):
    fingerprint = Fingerprint()
    for name, tensor in tensors.items():
        fingerprint.add(name, tensor)
    return fingerprint.digests()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (None, [[], []]),
        ("tensor-not-sent", [["q"], ["q"]]),
        ("tensor-transposed", [["q"], ["q"]]),
        ("tensor-stale", [[], ["q"]]),
        ("stale-weights", [[], ["embed", "q", "o"]]),
    ],
)
def test_exactly_these_tensors_arrive_wrong(name, wrong):
    assert list(updates(Drill(name), 2)) == wrong


@pytest.mark.parametrize("name", ONE_TENSOR)
def test_a_model_without_a_fitting_tensor_is_told_and_not_run_unharmed(name):
    drill = Drill(name)
    drill.sent({"embed": torch.ones(5, 4)})
    with pytest.raises(ArgumentError, match="no square tensor"):
        drill.after_sending()
