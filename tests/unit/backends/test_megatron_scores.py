"""Log-probs and entropies: closed form, gradients, chunks, padded columns."""

from __future__ import annotations

import pytest
import torch

from relax.backends.megatron.step import logprob
from relax.backends.megatron.step.logprob import VocabPart, token_scores

N, V, PADDED = 7, 11, 16


def whole_vocabulary(width: int = V) -> VocabPart:
    return VocabPart(start=0, width=width, group=None)


def logits_and_targets(dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(N, PADDED, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, V, (N,), generator=generator)
    return (logits * 3).to(dtype), targets


@pytest.fixture(params=["one-chunk", "row-by-row"])
def chunks(request, monkeypatch):
    if request.param == "row-by-row":
        monkeypatch.setattr(logprob, "CHUNK_BYTES", 1)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_equal_log_softmax_over_the_real_vocabulary(temperature):
    logits, targets = logits_and_targets()
    scores = token_scores(
        logits, targets, temperature=temperature, part=whole_vocabulary(), entropy=True
    )
    logp = torch.log_softmax(logits[:, :V] / temperature, dim=-1)
    expected = logp.gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(scores.log_probs, expected)
    torch.testing.assert_close(scores.entropy, -(logp.exp() * logp).sum(-1))


@pytest.mark.usefixtures("chunks")
def test_gradients_equal_finite_differences():
    logits, targets = logits_and_targets()
    logits.requires_grad_()

    def both(x):
        scores = token_scores(
            x, targets, temperature=0.7, part=whole_vocabulary(), entropy=True
        )
        return scores.log_probs, scores.entropy

    assert torch.autograd.gradcheck(both, logits)


def test_padded_columns_get_no_gradient():
    logits, targets = logits_and_targets()
    logits.requires_grad_()
    scores = token_scores(
        logits, targets, temperature=1.0, part=whole_vocabulary(), entropy=True
    )
    (scores.log_probs.sum() + scores.entropy.sum()).backward()
    assert (logits.grad[:, V:] == 0).all()
    assert (logits.grad[:, :V] != 0).all()


def test_half_precision_logits_are_scored_in_float32():
    logits, targets = logits_and_targets(torch.bfloat16)
    wide = token_scores(
        logits.float(), targets, temperature=1.0, part=whole_vocabulary(), entropy=False
    )
    half = token_scores(
        logits, targets, temperature=1.0, part=whole_vocabulary(), entropy=False
    )
    assert half.log_probs.dtype == torch.float32
    assert torch.equal(half.log_probs, wide.log_probs)
    assert half.entropy is None


def test_a_nan_row_stays_in_its_row():
    logits, targets = logits_and_targets(torch.float32)
    logits[2, 3] = torch.nan
    scores = token_scores(
        logits, targets, temperature=1.0, part=whole_vocabulary(), entropy=True
    )
    for column in scores:
        assert torch.isnan(column).nonzero().flatten().tolist() == [2]


def test_no_response_token_is_no_score():
    logits, targets = logits_and_targets()
    scores = token_scores(
        logits[:0].requires_grad_(),
        targets[:0],
        temperature=1.0,
        part=whole_vocabulary(),
        entropy=True,
    )
    assert scores.log_probs.shape == scores.entropy.shape == (0,)
    scores.log_probs.sum().backward()
