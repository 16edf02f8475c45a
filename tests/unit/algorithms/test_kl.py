"""The KL estimators against closed forms, gradients and non-finite inputs."""

from __future__ import annotations

import math

import pytest
import torch

from relax.algorithms.kl import kl_per_token
from relax.errors import ArgumentError, InternalError

CLOSED_FORMS = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: math.exp(-d) - 1 + d,
    "low_var_kl": lambda d: min(max(math.exp(-d) - 1 + d, -10.0), 10.0),
}


def pair(*differences: float) -> tuple[torch.Tensor, torch.Tensor]:
    reference = torch.linspace(-3, -1, len(differences), dtype=torch.float64)
    return reference + torch.tensor(differences, dtype=torch.float64), reference


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_closed_form(kind):
    differences = (-4.0, -0.7, -1e-3, 0.0, 1e-3, 0.7, 2.5)
    log_probs, reference = pair(*differences)
    expected = [CLOSED_FORMS[kind](d) for d in (log_probs - reference).tolist()]
    found = kl_per_token(log_probs, reference, kind=kind)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_equal_log_probs_give_exactly_zero(kind):
    values = torch.randn(50)
    assert torch.equal(kl_per_token(values, values, kind=kind), torch.zeros(50))


def test_k3_keeps_its_digits_where_the_naive_form_loses_them():
    d = torch.tensor([1e-4], dtype=torch.float32)
    found = kl_per_token(d, torch.zeros(1), kind="k3").item()
    assert found == pytest.approx(0.5e-8, rel=0.01)
    assert (torch.exp(-d) - 1 + d).item() != pytest.approx(0.5e-8, rel=0.01)


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_gradient(kind):
    log_probs, reference = pair(-0.7, 0.2, 1.5)
    log_probs.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: kl_per_token(x, reference, kind=kind), log_probs
    )


@pytest.mark.parametrize("kind", CLOSED_FORMS)
def test_nan_stays_at_its_token(kind):
    found = kl_per_token(torch.tensor([0.0, math.nan, -1.0]), torch.zeros(3), kind=kind)
    assert torch.isnan(found).tolist() == [False, True, False]


def test_importance_ratio_weights_each_estimate():
    log_probs, reference = pair(0.5, -0.5)
    ratio = torch.tensor([2.0, 0.5], dtype=torch.float64)
    plain = kl_per_token(log_probs, reference, kind="k2")
    weighted = kl_per_token(log_probs, reference, kind="k2", importance_ratio=ratio)
    torch.testing.assert_close(weighted, plain * ratio)


def test_unknown_kind_names_the_flag():
    with pytest.raises(ArgumentError, match="--kl-loss-type 'k9'"):
        kl_per_token(torch.zeros(1), torch.zeros(1), kind="k9")


def test_a_broadcast_is_refused():
    with pytest.raises(InternalError, match="ref_log_probs"):
        kl_per_token(torch.zeros(3), torch.zeros(1), kind="k1")


def test_any_shape_and_permutation():
    log_probs, reference = torch.randn(4, 6), torch.randn(4, 6)
    order = torch.randperm(24)
    whole = kl_per_token(log_probs, reference, kind="k3").flatten()[order]
    moved = kl_per_token(
        log_probs.flatten()[order], reference.flatten()[order], kind="k3"
    )
    torch.testing.assert_close(whole, moved)
