"""One optimizer step against the same formulas in float64, and what surrounds it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import random_model, random_samples, save_model, settings, with_columns

from relax.arguments.groups import (
    AlgorithmSettings,
    BatchSettings,
    CheckpointSettings,
    MegatronSettings,
)
from relax.backends.megatron.trainer import MegatronTrainer
from relax.errors import ArgumentError, InternalError
from relax.measure.reduction import Gauge, Mean

LEARNING_RATE = 0.5
TEMPERATURE = 0.8


@dataclass
class HandMade:
    """The step of `by_hand`: metrics, gradient norm, and the new weights."""

    metrics: dict[str, float]
    grad_norm: float
    weights: dict[str, torch.Tensor]


def by_hand(model, samples, algorithm, *, per_token, clip_grad) -> HandMade:
    """Loss, gradients and an SGD step in float64, sample by sample, unpadded."""
    model = model.double()
    model.zero_grad()
    names = ("pg_loss", "ppo_kl", "pg_clipfrac", "entropy_loss", "kl_loss")
    names += ("train_rollout_logprob_abs_diff", "train_rollout_prob_abs_diff")
    sums = dict.fromkeys(names, 0.0)
    loss = torch.zeros((), dtype=torch.float64)
    count = 0
    for sample in samples:
        tokens = torch.from_numpy(sample.tokens)
        first = len(tokens) - sample.response_length
        logits = model(tokens[None]).logits[0] / TEMPERATURE
        logp_all = torch.log_softmax(logits, -1)[first - 1 : -1]
        logp = logp_all.gather(1, tokens[first:, None]).squeeze(1)
        old, ref, rollout, advantage = (
            torch.from_numpy(column).double()
            for column in (
                sample.log_probs,
                sample.ref_log_probs,
                sample.rollout_log_probs,
                sample.advantages,
            )
        )
        ratio = (logp - old).exp()
        clipped = ratio.clamp(1 - algorithm.eps_clip, 1 + algorithm.eps_clip_high)
        d = logp - ref
        columns = {
            "pg_loss": torch.maximum(-ratio * advantage, -clipped * advantage),
            "ppo_kl": old - logp,
            "pg_clipfrac": (-clipped * advantage > -ratio * advantage).double(),
            "entropy_loss": -(logp_all.exp() * logp_all).sum(-1),
            "kl_loss": (-d).exp() - 1 + d,
            "train_rollout_logprob_abs_diff": (old - rollout).abs(),
            "train_rollout_prob_abs_diff": (old.exp() - rollout.exp()).abs(),
        }
        kept = torch.from_numpy(sample.loss_mask).bool()
        weight = 1.0 if per_token else 1.0 / max(int(kept.sum()), 1)
        reduced = {name: col[kept].sum() * weight for name, col in columns.items()}
        loss = loss + reduced["pg_loss"]
        loss = loss - algorithm.entropy_coef * reduced["entropy_loss"]
        loss = loss + algorithm.kl_loss_coef * reduced["kl_loss"]
        for name, value in reduced.items():
            sums[name] += float(value.detach())
        count += int(kept.sum()) if per_token else 1
    (loss / count).backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    scale = LEARNING_RATE * min(1.0, clip_grad / (norm + 1e-6))
    weights = {
        name: p.detach() - scale * p.grad for name, p in model.named_parameters()
    }
    metrics = {name: total / count for name, total in sums.items()}
    metrics["loss"] = float(loss.detach()) / count
    return HandMade(metrics=metrics, grad_norm=norm, weights=weights)


def noisy(samples, *, seed=3):
    """Old and reference log-probs moved: ratios leave 1 and some are clipped."""
    rng = np.random.default_rng(seed)

    def moved(column, size):
        return (column + rng.normal(0, size, len(column))).astype(np.float32)

    return [
        replace(
            s,
            log_probs=moved(s.log_probs, 0.3),
            ref_log_probs=moved(s.log_probs, 0.5),
            rollout_log_probs=moved(s.log_probs, 0.1),
        )
        for s in samples
    ]


STEPS = {
    "qwen2-tied-samples": ("qwen2", True, False, 1e9),
    "qwen3-untied-tokens": ("qwen3", False, True, 1e9),
    "llama-tied-clipped": ("llama", True, False, 0.01),
}


@pytest.mark.parametrize(
    ("family", "tied", "per_token", "clip_grad"), STEPS.values(), ids=STEPS
)
def test_a_step_equals_the_float64_step(
    family, tied, per_token, clip_grad, tmp_path, open_trainer
):
    model = random_model(family, tied=tied)
    save_model(model, tmp_path / "hf")
    algorithm = AlgorithmSettings(
        eps_clip=0.2,
        eps_clip_high=0.28,
        entropy_coef=0.01,
        use_kl_loss=True,
        kl_loss_coef=0.1,
        kl_loss_type="k3",
    )
    batch = BatchSettings(
        rollout_batch_size=2,
        n_samples_per_prompt=4,
        global_batch_size=8,
        micro_batch_size=3,
        calculate_per_token_loss=per_token,
    )
    megatron = MegatronSettings(
        optimizer={
            "optimizer": "sgd",
            "sgd_momentum": 0.0,
            "lr": LEARNING_RATE,
            "weight_decay": 0.0,
            "clip_grad": clip_grad,
        }
    )
    trainer = open_trainer(
        settings(tmp_path, algorithm=algorithm, batch=batch, megatron=megatron)
    )
    samples = noisy(with_columns(random_samples(8), trainer, reference=False))
    expected = by_hand(
        model, samples, algorithm, per_token=per_token, clip_grad=clip_grad
    )
    assert 0 < expected.metrics["pg_clipfrac"] < 1

    (result,) = trainer.train(samples, rollout_id=0)

    for name, value in expected.metrics.items():
        reduction = result.metrics[f"train/{name}"]
        assert isinstance(reduction, Mean)
        assert reduction.value == pytest.approx(value, rel=1e-5, abs=1e-6), name
    assert result.metrics["train/grad_norm"].value == pytest.approx(
        expected.grad_norm, rel=1e-5
    )
    parts = [
        result.metrics[f"train/grad_norm/{part}"].value
        for part in ("embedding", "attention", "mlp", "norm", "output")
        if not (tied and part == "output")
    ]
    assert math.hypot(*parts) == pytest.approx(expected.grad_norm, rel=1e-5)
    assert min(parts) > 0
    (exported,) = trainer.export_weights(bucket_bytes=1 << 30)
    for name, tensor in exported.items():
        change = (expected.weights[name] - model.state_dict()[name]).abs().max()
        assert change > 0, name
        np.testing.assert_allclose(
            tensor.double(), expected.weights[name], atol=2e-6, rtol=0, err_msg=name
        )


def kl_settings(folder: Path, **changes: object):
    algorithm = AlgorithmSettings(use_kl_loss=True, kl_loss_type="k3")
    checkpoint = CheckpointSettings(hf_checkpoint=folder / "hf", ref_load=folder / "hf")
    return settings(
        folder, **({"algorithm": algorithm, "checkpoint": checkpoint} | changes)
    )


def test_first_step_kl_is_exactly_zero_and_then_not(llama_folder, open_trainer):
    trainer = open_trainer(kl_settings(llama_folder))
    samples = with_columns(random_samples(8), trainer, reference=True)
    (first,) = trainer.train(samples, rollout_id=0)
    assert first.metrics["train/ppo_kl"] == Mean(0.0, 8.0)
    assert first.metrics["train/kl_loss"] == Mean(0.0, 8.0)
    assert first.vacuous == ()
    assert first.metrics["train/lr-pg_0"] == Gauge(1e-3)
    assert first.metrics["train/global_batch_size"] == Gauge(8.0)
    assert trainer.weights_version == 1

    (second,) = trainer.train(samples, rollout_id=1)
    assert second.metrics["train/kl_loss"].value > 0
    assert second.metrics["train/loss"].value < first.metrics["train/loss"].value
    assert second.step_id == 1


def test_without_old_log_probs_the_zero_terms_are_called_vacuous(
    llama_folder, open_trainer
):
    trainer = open_trainer(settings(llama_folder))
    samples = with_columns(random_samples(8), trainer, reference=False)
    bare = [replace(sample, log_probs=None) for sample in samples]
    (result,) = trainer.train(bare, rollout_id=0)
    assert result.vacuous == ("ppo_kl", "pg_clipfrac")
    assert result.metrics["train/ppo_kl"].value == 0.0
    assert result.metrics["train/train_rollout_logprob_abs_diff"].value > 0


def test_samples_without_engine_log_probs_are_left_out_of_the_difference(
    llama_folder, open_trainer
):
    trainer = open_trainer(settings(llama_folder))
    samples = with_columns(random_samples(8), trainer, reference=False)
    some = [
        replace(s, rollout_log_probs=None) if s.sample_index % 3 else s for s in samples
    ]
    (result,) = trainer.train(some, rollout_id=0)
    difference = result.metrics["train/train_rollout_logprob_abs_diff"]
    kept = [s for s in some if s.rollout_log_probs is not None]
    total = sum(
        np.abs(s.log_probs - s.rollout_log_probs)[s.loss_mask > 0].mean() for s in kept
    )
    assert difference.count == len(kept) == 3
    assert difference.total == pytest.approx(total, rel=1e-5)
    assert result.metrics["train/loss"].count == 8

    none = [replace(s, rollout_log_probs=None) for s in samples]
    (result,) = trainer.train(none, rollout_id=1)
    assert "train/train_rollout_logprob_abs_diff" not in result.metrics


def test_steps_of_a_rollout_and_their_placements(llama_folder, open_trainer):
    batch = BatchSettings(
        rollout_batch_size=2,
        n_samples_per_prompt=4,
        global_batch_size=4,
        num_steps_per_rollout=2,
        micro_batch_size=3,
    )
    trainer = open_trainer(settings(llama_folder, batch=batch))
    samples = with_columns(random_samples(8), trainer, reference=False)
    results = trainer.train(samples, rollout_id=5)
    assert [result.step_id for result in results] == [10, 11]
    assert trainer.weights_version == 2
    assert [
        (place.sample_index, place.micro_batch, place.place)
        for result in results
        for place in result.placements
    ] == [
        (0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0),
        (4, 0, 0), (5, 0, 1), (6, 0, 2), (7, 1, 0),
    ]  # fmt: skip
    # The second step runs on weights that the log-probs were not computed with.
    assert results[0].metrics["train/ppo_kl"].value == 0.0
    assert results[1].metrics["train/ppo_kl"].value != 0.0


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_nonfinite_gradient_skips_the_step_and_is_shown(
    reward, llama_folder, open_trainer
):
    trainer = open_trainer(settings(llama_folder))
    before = trainer.fingerprint()
    samples = random_samples(8)
    samples[3] = replace(samples[3], reward=reward)
    samples = with_columns(samples, trainer, reference=False)

    (result,) = trainer.train(samples, rollout_id=0)

    assert result.skipped
    assert result.nonfinite > 0
    assert not math.isfinite(result.metrics["train/grad_norm"].value)
    assert not math.isfinite(result.metrics["train/pg_loss"].value)
    assert trainer.fingerprint() == before
    assert trainer.weights_version == 0

    healthy = with_columns(random_samples(8), trainer, reference=False)
    (result,) = trainer.train(healthy, rollout_id=1)
    assert not result.skipped
    assert math.isfinite(result.metrics["train/grad_norm"].value)
    assert trainer.fingerprint() != before


def test_grad_norm_is_measured_without_clipping(llama_folder, open_trainer):
    norms = []
    for clip in (0.0, 1e9):
        megatron = MegatronSettings(optimizer={"lr": 1e-3, "clip_grad": clip})
        trainer = open_trainer(settings(llama_folder, megatron=megatron))
        samples = with_columns(random_samples(8), trainer, reference=False)
        (result,) = trainer.train(samples, rollout_id=0)
        norms.append(result.metrics["train/grad_norm"].value)
    assert norms[0] == norms[1] > 0


def one_step(trainer: MegatronTrainer, rollout_id: int) -> list[float]:
    samples = random_samples(8, seed=rollout_id)
    samples = with_columns(samples, trainer, reference=False)
    (result,) = trainer.train(samples, rollout_id=rollout_id)
    return [result.metrics[f"train/{name}"].value for name in ("loss", "grad_norm")]


def test_a_resumed_run_makes_the_same_bits(llama_folder, tmp_path, open_trainer):
    told = settings(llama_folder)
    straight = open_trainer(told)
    one_step(straight, 0)
    straight.save(tmp_path / "checkpoint")
    saved = straight.fingerprint()
    with pytest.raises(ArgumentError, match="exists"):
        straight.save(tmp_path / "checkpoint")
    later = [one_step(straight, 1), one_step(straight, 2)]
    end = straight.fingerprint()

    checkpoint = replace(told.checkpoint, load=tmp_path / "checkpoint")
    fresh = settings(llama_folder, checkpoint=checkpoint)
    resumed = open_trainer(fresh)
    assert resumed.weights_version == 1
    assert resumed.fingerprint() == saved
    assert [one_step(resumed, 1), one_step(resumed, 2)] == later
    assert resumed.fingerprint() == end

    # Into a trainer that already runs, as coming back from an excursion does.
    resumed.load(tmp_path / "checkpoint")
    assert (resumed.fingerprint(), resumed.weights_version) == (saved, 1)
    assert one_step(resumed, 1) == later[0]


def test_a_checkpoint_can_be_the_reference(llama_folder, tmp_path, open_trainer):
    trainer = open_trainer(settings(llama_folder))
    one_step(trainer, 0)
    trainer.save(tmp_path / "checkpoint")
    samples = random_samples(8)
    expected = trainer.log_probs(samples).log_probs
    checkpoint = CheckpointSettings(
        hf_checkpoint=llama_folder / "hf", ref_load=tmp_path / "checkpoint"
    )
    trainer = open_trainer(settings(llama_folder, checkpoint=checkpoint))
    ref = trainer.log_probs(samples, weights="ref").log_probs
    for a, b in zip(ref, expected, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_checkpoint_of_another_layout_or_version_is_refused(
    llama_folder, tmp_path, open_trainer
):
    trainer = open_trainer(settings(llama_folder))
    trainer.save(tmp_path / "checkpoint")
    meta = tmp_path / "checkpoint" / "relax_checkpoint.json"
    good = meta.read_text()
    meta.write_text(good.replace('"tensor": 1', '"tensor": 2'))
    with pytest.raises(ArgumentError, match="layout"):
        trainer.load(tmp_path / "checkpoint")
    meta.write_text(good.replace('"version": 1', '"version": 9'))
    with pytest.raises(ArgumentError, match="version 9"):
        trainer.load(tmp_path / "checkpoint")


def test_whitened_advantages(llama_folder, open_trainer):
    algorithm = AlgorithmSettings(normalize_advantages=True)
    trainer = open_trainer(settings(llama_folder, algorithm=algorithm))
    samples = random_samples(8)
    pairs = trainer.advantages(samples)
    kept = np.concatenate(
        [a[s.loss_mask.astype(bool)] for s, (a, _) in zip(samples, pairs, strict=True)]
    )
    assert abs(kept.mean()) < 1e-6
    assert kept.std(ddof=1) == pytest.approx(1.0, abs=1e-4)
    for sample, (_, returns) in zip(samples, pairs, strict=True):
        assert (returns == np.float32(sample.reward)).all()


MISSING = {
    "advantages": (AlgorithmSettings(), "advantages"),
    "ref_log_probs": (AlgorithmSettings(use_kl_loss=True), "use-kl-loss"),
    "rollout_log_probs": (AlgorithmSettings(use_tis=True), "use-tis"),
}


@pytest.mark.parametrize("column", MISSING)
def test_a_missing_column_is_named(column, llama_folder, open_trainer):
    algorithm, said = MISSING[column]
    trainer = open_trainer(settings(llama_folder, algorithm=algorithm))
    samples = with_columns(random_samples(8), trainer, reference=False)
    with pytest.raises(ArgumentError, match=said):
        trainer.train(
            [replace(sample, **{column: None}) for sample in samples], rollout_id=0
        )


def test_truncated_importance_sampling_weighs_the_loss(llama_folder, open_trainer):
    algorithm = AlgorithmSettings(use_tis=True, tis_clip=1.0, tis_clip_low=1.0)
    trainer = open_trainer(settings(llama_folder, algorithm=algorithm))
    samples = noisy(with_columns(random_samples(8), trainer, reference=False))
    (result,) = trainer.train(samples, rollout_id=0)
    plain = open_trainer(settings(llama_folder))
    (expected,) = plain.train(samples, rollout_id=0)
    # Both limits at 1 leave the loss as it is, and clip every token.
    for name in ("train/pg_loss", "train/grad_norm"):
        assert result.metrics[name] == expected.metrics[name]
    assert result.metrics["train/tis_clipfrac"].value == pytest.approx(7 / 8)
    assert result.metrics["train/tis"].value != result.metrics["train/tis_abs"].value


def test_reference_weights_in_place_refuse_training(llama_folder, open_trainer):
    trainer = open_trainer(kl_settings(llama_folder))
    samples = with_columns(random_samples(8), trainer, reference=True)
    with pytest.raises(InternalError, match="ref"), trainer.weights("ref"):
        trainer.train(samples, rollout_id=0)
    with pytest.raises(ArgumentError, match="old"), trainer.weights("old"):
        pass


def test_half_precision_trains_on_float32_masters_and_resumes(
    llama_folder, tmp_path, open_trainer
):
    megatron = MegatronSettings(transformer={"bf16": True}, optimizer={"lr": 1e-3})
    told = settings(llama_folder, megatron=megatron)
    trainer = open_trainer(told)
    full = open_trainer(settings(llama_folder)).log_probs(random_samples(8))
    trainer = open_trainer(told)
    half = trainer.log_probs(random_samples(8))
    for a, b in zip(half.log_probs, full.log_probs, strict=True):
        np.testing.assert_allclose(a, b, atol=0.2)
        assert a.dtype == np.float32
    (exported,) = trainer.export_weights(bucket_bytes=1 << 30)
    assert {tensor.dtype for tensor in exported.values()} == {torch.bfloat16}

    one_step(trainer, 0)
    trainer.save(tmp_path / "checkpoint")
    later = [one_step(trainer, 1), one_step(trainer, 2)]
    end = trainer.fingerprint()
    trainer.load(tmp_path / "checkpoint")
    assert [one_step(trainer, 1), one_step(trainer, 2)] == later
    assert trainer.fingerprint() == end
