"""The loss of a micro-batch: every estimator, KL and correction, on ragged masks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from relax.arguments.foreign import ESTIMATORS
from relax.arguments.groups import AlgorithmSettings
from relax.backends.megatron.step.batch import (
    TrainSample,
    build_micro_batch,
    rectangle_of,
)
from relax.backends.megatron.step.logprob import TokenScores
from relax.backends.megatron.step.loss import micro_batch_loss

CPU = torch.device("cpu")
KL_KINDS = ("k1", "k2", "k3", "low_var_kl")
CORRECTIONS = {
    "plain": {},
    "tis": {"use_tis": True, "tis_clip": 1.2, "tis_clip_low": 0.8},
    "rollout-old": {"use_rollout_logprobs": True},
    "unbiased-kl": {"use_unbiased_kl": True},
}
CASES = [
    (estimator, kind, name, per_token)
    for (estimator, per_token), (kind, name) in itertools.product(
        itertools.product(ESTIMATORS, (False, True)),
        zip(KL_KINDS, CORRECTIONS, strict=True),
    )
]


def samples_of(seed=0, lengths=(4, 7, 1, 3, 5), *, empty=3) -> list[TrainSample]:
    """Ragged samples whose columns disagree enough for clips to act."""
    rng = np.random.default_rng(seed)

    def column(mean, std, n):
        return rng.normal(mean, std, n).astype(np.float32)

    samples = []
    for index, n in enumerate(lengths):
        mask = (rng.random(n) > 0.3).astype(np.int8)
        mask[0] = 1
        samples.append(
            TrainSample(
                sample_index=index,
                tokens=rng.integers(1, 50, n + 3),
                response_length=n,
                loss_mask=mask * 0 if index == empty else mask,
                rollout_log_probs=column(-2, 0.3, n),
                reward=0.0,
                group_index=0,
                log_probs=column(-2, 0.3, n),
                ref_log_probs=column(-2, 0.5, n),
                advantages=column(0, 1, n),
                returns=column(0, 1, n),
            )
        )
    return samples


def now(samples, seed=9):
    """Log-probs of now and entropies, one array [R] a sample, float64."""
    rng = np.random.default_rng(seed)
    sizes = [sample.response_length for sample in samples]
    return (
        [rng.normal(-2, 0.4, n) for n in sizes],
        [rng.uniform(0.5, 2, n) for n in sizes],
    )


def settings_of(estimator, kind, correction) -> AlgorithmSettings:
    return AlgorithmSettings(
        advantage_estimator=estimator,
        eps_clip_high=0.28,
        entropy_coef=0.03,
        use_kl_loss=True,
        kl_loss_coef=0.2,
        kl_loss_type=kind,
        **CORRECTIONS[correction],
    )


def run(samples, log_probs, entropy, *, settings, per_token):
    rows = tuple(range(len(samples)))
    batch = build_micro_batch(
        samples,
        rows,
        number=0,
        rectangle=rectangle_of(samples, rows, multiple=1, packed=False),
        device=CPU,
    )
    scores = TokenScores(log_probs, entropy)
    return micro_batch_loss(scores, batch, settings=settings, per_token=per_token)


def joined(columns) -> torch.Tensor:
    return torch.tensor(np.concatenate(columns))


def by_hand(samples, log_probs, entropy, *, settings, per_token):
    """The loss sum and its count in numpy, sample by sample, token by token."""
    total, count = 0.0, 0
    for sample, lp, h in zip(samples, log_probs, entropy, strict=True):
        keep = sample.loss_mask.astype(bool)
        old64 = sample.log_probs.astype(float)
        rollout = sample.rollout_log_probs.astype(float)
        old = rollout if settings.use_rollout_logprobs else old64
        a, ref = sample.advantages.astype(float), sample.ref_log_probs.astype(float)
        low, high = 1 - settings.eps_clip, 1 + settings.eps_clip_high
        gap = lp - old
        if settings.advantage_estimator == "gspo" and keep.any():
            gap = np.full_like(gap, gap[keep].mean())
        ratio = np.exp(gap)
        loss = np.maximum(-ratio * a, -np.clip(ratio, low, high) * a)
        if settings.advantage_estimator == "cispo":
            weight = np.where(a >= 0, np.minimum(ratio, high), np.maximum(ratio, low))
            loss = -weight * a * lp
        if settings.use_tis:
            bounds = settings.tis_clip_low, settings.tis_clip
            loss = loss * np.clip(np.exp(old - rollout), *bounds)
        d = lp - ref
        k3 = np.exp(-d) - 1 + d
        kl = {"k1": d, "k2": d * d / 2, "k3": k3, "low_var_kl": k3}
        penalty = kl[settings.kl_loss_type]
        if settings.use_unbiased_kl:
            penalty = np.exp(lp - old) * penalty
        if settings.kl_loss_type == "low_var_kl":
            penalty = np.clip(penalty, -10, 10)
        token = loss - settings.entropy_coef * h + settings.kl_loss_coef * penalty
        if per_token:
            total, count = total + token[keep].sum(), count + int(keep.sum())
        else:
            total += token[keep].mean() if keep.any() else 0.0
            count += 1
    return total, count


@pytest.mark.parametrize(("estimator", "kind", "correction", "per_token"), CASES)
def test_closed_form_and_gradient(estimator, kind, correction, per_token):
    settings = settings_of(estimator, kind, correction)
    samples = samples_of()
    log_probs, entropy = now(samples)

    leaf = joined(log_probs).requires_grad_()
    sums = run(samples, leaf, joined(entropy), settings=settings, per_token=per_token)

    total, count = by_hand(
        samples, log_probs, entropy, settings=settings, per_token=per_token
    )
    assert sums.loss.count == count
    assert sums.loss.total.item() == pytest.approx(total, rel=1e-6)
    assert sums.terms["loss"].total.item() == sums.loss.total.item()
    for part in sums.terms.values():
        assert not part.total.requires_grad

    def loss(values):
        return run(
            samples, values, joined(entropy), settings=settings, per_token=per_token
        ).loss.total

    if estimator == "cispo":
        return  # its gradient is not that of its value: tested by itself
    # The columns are float32, so a finite difference would see their rounding.
    assert torch.autograd.gradcheck(loss, leaf, eps=1e-4, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_order_and_splits_change_nothing(estimator, per_token):
    settings = settings_of(estimator, "k3", "tis")
    samples = samples_of()
    log_probs, entropy = now(samples)

    def sums_over(rows):
        chosen = [samples[row] for row in rows]
        leaf = joined([log_probs[row] for row in rows]).requires_grad_()
        sums = run(
            chosen,
            leaf,
            joined([entropy[row] for row in rows]),
            settings=settings,
            per_token=per_token,
        )
        sums.loss.total.backward()
        pieces = leaf.grad.split([s.response_length for s in chosen])
        return sums, dict(zip(rows, pieces, strict=True))

    whole, gradient = sums_over(range(5))
    for split in ([(4, 0, 3, 2, 1)], [(0, 1), (2, 3, 4)], [(3,), (1, 4, 0), (2,)]):
        parts = [sums_over(rows) for rows in split]
        for name, term in whole.terms.items():
            total = sum(part.terms[name].total for part, _ in parts)
            torch.testing.assert_close(total, term.total)
            assert sum(part.terms[name].count for part, _ in parts) == term.count
        for rows in (found for _, found in parts):
            for row, piece in rows.items():
                torch.testing.assert_close(piece, gradient[row])


@pytest.mark.parametrize("junk", [0.0, 300.0, -300.0, np.nan, np.inf])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_masked_tokens_touch_neither_loss_nor_gradient(estimator, junk):
    """Samples longer by masked tokens whose columns hold anything: the same loss."""
    settings = settings_of(estimator, "k3", "tis")
    samples = samples_of()
    log_probs, entropy = now(samples)

    def longer(sample):
        def more(column, value):
            return np.append(column, [value, value]).astype(column.dtype)

        logs = ("rollout_log_probs", "log_probs", "ref_log_probs")
        names = (*logs, "advantages", "returns")
        return replace(
            sample,
            tokens=more(sample.tokens, 1),
            response_length=sample.response_length + 2,
            loss_mask=more(sample.loss_mask, 0),
            **{name: more(getattr(sample, name), junk) for name in names},
        )

    plain = joined(log_probs).requires_grad_()
    padded = [np.append(values, [-5.0, -0.1]) for values in log_probs]
    leaf = joined(padded).requires_grad_()
    options = {"settings": settings, "per_token": False}
    short = run(samples, plain, joined(entropy), **options)
    long = run(
        [longer(sample) for sample in samples],
        leaf,
        joined([np.append(values, [1.0, 1.0]) for values in entropy]),
        **options,
    )
    short.loss.total.backward()
    long.loss.total.backward()

    torch.testing.assert_close(long.loss.total, short.loss.total)
    at = 0
    for sample, piece in zip(
        samples, plain.grad.split([s.response_length for s in samples]), strict=True
    ):
        n = sample.response_length
        torch.testing.assert_close(leaf.grad[at : at + n], piece)
        assert leaf.grad[at + n : at + n + 2].tolist() == [0.0, 0.0]
        at += n + 2


def test_an_unmasked_nan_is_seen():
    samples = samples_of()
    bad = samples[1].advantages.copy()
    bad[0] = np.nan
    samples[1] = replace(samples[1], advantages=bad)
    log_probs, entropy = now(samples)
    sums = run(
        samples,
        joined(log_probs),
        joined(entropy),
        settings=AlgorithmSettings(),
        per_token=False,
    )
    assert torch.isnan(sums.loss.total)


def test_a_micro_batch_without_samples_adds_nothing_and_has_a_graph():
    leaf = torch.zeros(0, requires_grad=True)
    for estimator in ESTIMATORS:
        settings = settings_of(estimator, "k3", "tis")
        sums = run([], leaf * 1, torch.zeros(0), settings=settings, per_token=False)
        sums.loss.total.backward()
        assert sums.loss.count == 0
        assert {part.count for part in sums.terms.values()} == {0}
        assert {float(part.total) for part in sums.terms.values()} == {0.0}
