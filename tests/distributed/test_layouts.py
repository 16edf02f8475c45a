"""The same numbers on every parallel layout as on one rank.

One pair of processes runs the whole table, one layout after the other. A layout is
compared in scores, metrics, gradient norm and weights after two steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_ranks
from tiny_models import random_model, random_samples, save_model, settings, with_columns

from relax.arguments.groups import (
    AlgorithmSettings,
    BatchSettings,
    CheckpointSettings,
    LayoutSettings,
    MegatronSettings,
)
from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.trainer import MegatronTrainer

LAYOUTS: dict[str, dict[str, Any]] = {
    "tp2": {"tensor_model_parallel_size": 2},
    "tp2-sp": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "pp2": {"pipeline_model_parallel_size": 2},
    "dp2": {},
    "dp2-distributed-optimizer": {"use_distributed_optimizer": True},
}
ONE_RANK: dict[str, Any] = {}
MODELS = {"qwen3-tied": ("qwen3", True), "qwen2-untied": ("qwen2", False)}
PER_TOKEN = "qwen2-untied"
TABLE = [
    ("qwen3-tied", "tp2"),
    ("qwen3-tied", "pp2"),
    ("qwen3-tied", "dp2-distributed-optimizer"),
    ("qwen2-untied", "tp2-sp"),
    ("qwen2-untied", "pp2"),
    ("qwen2-untied", "dp2"),
]


@dataclass
class Outcome:
    """What one rank saw of a run on one layout."""

    log_probs: dict[int, np.ndarray]
    ref_log_probs: dict[int, np.ndarray]
    entropy: dict[int, np.ndarray]
    metrics: list[dict[str, tuple[float, ...]]]
    weights: dict[str, np.ndarray]
    resumed: tuple[str, str, str, str]
    data_rank: int


def told(folder: Path, layout: dict[str, Any], *, per_token: bool) -> TrainerSettings:
    return settings(
        folder,
        checkpoint=CheckpointSettings(
            hf_checkpoint=folder / "hf", ref_load=folder / "hf"
        ),
        layout=LayoutSettings(**layout),
        batch=BatchSettings(
            rollout_batch_size=4,
            n_samples_per_prompt=4,
            global_batch_size=8,
            num_steps_per_rollout=2,
            micro_batch_size=2,
            calculate_per_token_loss=per_token,
        ),
        algorithm=AlgorithmSettings(
            use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k3", entropy_coef=0.01
        ),
        megatron=MegatronSettings(
            optimizer={"lr": 1e-3, "clip_grad": 0.5}, ref_mode="swap"
        ),
    )


def run_layout(settings: TrainerSettings, scratch: Path) -> Outcome:
    trainer = MegatronTrainer(settings)
    trainer.open()
    try:
        return _outcome(trainer, scratch)
    finally:
        trainer.close()


def _outcome(trainer: MegatronTrainer, scratch: Path) -> Outcome:
    layout = trainer._opened().layout
    # Steps of four samples a replica when there are two: interleaved, so that both
    # layouts put the same samples into the same step.
    samples = random_samples(16)
    mine = [s for s in samples if s.sample_index % layout.data_size == layout.data_rank]
    scored = trainer.log_probs(mine, entropy=True)
    mine = with_columns(mine, trainer, reference=True)
    steps = trainer.train(mine, rollout_id=0)
    metrics = [
        {
            name: tuple(getattr(value, field) for field in type(value).__slots__)
            for name, value in step.metrics.items()
        }
        for step in steps
    ]
    (weights,) = trainer.export_weights(bucket_bytes=1 << 30)
    resumed = _save_and_resume(trainer, mine, scratch)
    index = [sample.sample_index for sample in mine]
    return Outcome(
        log_probs=dict(zip(index, scored.log_probs, strict=True)),
        ref_log_probs={s.sample_index: s.ref_log_probs for s in mine},
        entropy=dict(zip(index, scored.entropy, strict=True)),
        metrics=metrics,
        weights={name: tensor.numpy() for name, tensor in weights.items()},
        resumed=resumed,
        data_rank=layout.data_rank,
    )


def _save_and_resume(
    trainer: MegatronTrainer, samples: list[Any], scratch: Path
) -> tuple[str, str, str, str]:
    saved = trainer.fingerprint()
    trainer.save(scratch)
    trainer.train(samples, rollout_id=1)
    after = trainer.fingerprint()
    trainer.load(scratch)
    restored = trainer.fingerprint()
    trainer.train(samples, rollout_id=1)
    return saved, restored, after, trainer.fingerprint()


def run_table(
    *, rank: int, world_size: int, folder: Path
) -> dict[tuple[str, str], Outcome]:
    """In each process: the whole table."""
    outcomes = {}
    for model, name in TABLE:
        base = told(folder / model, LAYOUTS[name], per_token=model == PER_TOKEN)
        meeting = f"file://{folder}/{model}-{name}"
        here = replace(base, rank=rank, world_size=world_size, init_method=meeting)
        scratch = folder / f"checkpoint-{model}-{name}"
        outcomes[model, name] = run_layout(here, scratch)
    return outcomes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    for name, (family, tied) in MODELS.items():
        save_model(random_model(family, tied=tied), folder / name / "hf")
    return folder


@pytest.fixture(scope="module")
def on_two_ranks(folder):
    return run_ranks(run_table, world_size=2, folder=folder)


@pytest.fixture(scope="module")
def on_one_rank(folder):
    return {
        model: run_layout(
            told(folder / model, ONE_RANK, per_token=model == PER_TOKEN),
            folder / f"checkpoint-{model}-one",
        )
        for model in MODELS
    }


@pytest.mark.parametrize(("model", "layout"), TABLE)
def test_a_layout_gives_the_numbers_of_one_rank(
    model, layout, on_one_rank, on_two_ranks
):
    expected = on_one_rank[model]
    seen: set[int] = set()
    for outcomes in on_two_ranks:
        outcome = outcomes[model, layout]
        for column in ("log_probs", "entropy", "ref_log_probs"):
            for index, values in getattr(outcome, column).items():
                one = getattr(expected, column)[index]
                np.testing.assert_allclose(values, one, atol=1e-5, rtol=1e-5)
                seen.add(index)
        for index, values in outcome.log_probs.items():
            assert values.tobytes() == outcome.ref_log_probs[index].tobytes()
        assert len(outcome.metrics) == len(expected.metrics) == 2
        for step, one in zip(outcome.metrics, expected.metrics, strict=True):
            by_part = {name for name in one if name.startswith("train/grad_norm/")}
            assert len(by_part) == (5 if model == "qwen2-untied" else 4)
            # No rank of a distributed optimizer holds whole gradients.
            absent = by_part if "distributed" in layout else set()
            assert set(step) == set(one) - absent
            for name in step:
                np.testing.assert_allclose(
                    step[name], one[name], rtol=1e-4, atol=1e-5, err_msg=name
                )
        for name, tensor in expected.weights.items():
            # Adam divides by the root of a tiny second moment: gradients near zero
            # may step the other way, by at most the learning rate a step.
            difference = np.abs(outcome.weights[name] - tensor)
            assert difference.max() <= 2 * 2e-3, name
            assert np.quantile(difference, 0.99) <= 1e-4, name
    assert seen == set(range(16))


@pytest.mark.parametrize(("model", "layout"), TABLE)
def test_ranks_agree_and_resume_bitwise(model, layout, on_two_ranks):
    first, second = (outcomes[model, layout] for outcomes in on_two_ranks)
    assert first.metrics == second.metrics
    for name, tensor in first.weights.items():
        assert tensor.tobytes() == second.weights[name].tobytes(), name
    assert first.resumed == second.resumed
    saved, restored, after, after_resume = first.resumed
    assert saved == restored != after == after_resume
