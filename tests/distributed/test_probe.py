"""Marks, kept weights and probes: nothing that a probe touches stays changed."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_ranks
from tiny_models import random_model, random_samples, save_model, settings, with_columns

from relax.arguments.groups import (
    CheckpointSettings,
    LayoutSettings,
    MegatronSettings,
)
from relax.backends.megatron.reachable import differences
from relax.backends.megatron.trainer import MegatronTrainer
from relax.errors import ArgumentError


def told(folder: Path, **changes: object):
    checkpoint = CheckpointSettings(hf_checkpoint=folder / "hf", ref_load=folder / "hf")
    return settings(folder, checkpoint=checkpoint, keep_weights=2, **changes)


def scores(trainer: MegatronTrainer, samples) -> bytes:
    return b"".join(c.tobytes() for c in trainer.log_probs(samples).log_probs)


def numbers(results) -> list[dict[str, float]]:
    return [{k: m.value for k, m in r.metrics.items()} for r in results]


@pytest.fixture(scope="module", params=["llama", "qwen3_moe"])
def folder(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    save_model(random_model(request.param, tied=False), folder / "hf")
    return folder


@pytest.mark.parametrize("ref_mode", ["resident", "swap"])
@pytest.mark.parametrize("steps_before", [0, 2])
def test_everything_is_as_before_after_a_mark(
    folder, open_trainer, ref_mode, steps_before
):
    megatron = MegatronSettings(optimizer={"lr": 1e-3}, ref_mode=ref_mode)
    trainer = open_trainer(told(folder, megatron=megatron))
    samples = with_columns(random_samples(8), trainer, reference=True)
    for number in range(steps_before):
        trainer.train(samples, rollout_id=number)
    before = trainer.digests()
    mark = trainer.mark()
    trainer.train(samples, rollout_id=7)
    trainer.log_probs(samples, weights="ref")
    assert differences(before, trainer.digests())
    assert trainer.weights_version == steps_before + 1
    trainer.return_to(mark)
    assert differences(before, trainer.digests()) == ()
    assert trainer.weights_version == steps_before


def test_no_pass_leaves_a_graph_behind(folder, open_trainer):
    before = computed_tensors()
    trainer = open_trainer(told(folder))
    samples = with_columns(random_samples(8), trainer, reference=True)
    passes = [
        lambda: trainer.gradients(samples, rollout_id=0),
        lambda: trainer.train(samples, rollout_id=0),
        lambda: trainer.log_probs(samples),
    ]
    for run in passes:
        run()
        assert computed_tensors() == before


def computed_tensors() -> int:
    """Tensors of this process that hold a graph of autograd, and its activations."""
    gc.collect()
    found = (one for one in gc.get_objects() if type(one) is torch.Tensor)
    return sum(one.grad_fn is not None for one in found)


def test_a_run_goes_on_as_if_it_had_not_left(folder, open_trainer):
    trainer = open_trainer(told(folder))
    samples = with_columns(random_samples(8), trainer, reference=True)
    other = with_columns(random_samples(8, seed=5), trainer, reference=True)
    trainer.train(samples, rollout_id=0)
    mark = trainer.mark()
    undisturbed = numbers(
        trainer.train(s, rollout_id=1)[0] for s in (samples, other, samples)
    )
    weights = trainer.fingerprint()
    for _ in range(2):
        trainer.return_to(mark)
        trainer.train(other, rollout_id=1)
        trainer.return_to(mark)
        again = numbers(
            trainer.train(s, rollout_id=1)[0] for s in (samples, other, samples)
        )
        assert again == undisturbed
        assert trainer.fingerprint() == weights


def test_gradients_are_those_of_the_step_that_follows(folder, open_trainer):
    trainer = open_trainer(told(folder))
    samples = with_columns(random_samples(16), trainer, reference=True)
    trainer.train(samples, rollout_id=0)
    mark = trainer.mark()
    probed = trainer.gradients(samples, rollout_id=1)
    trainer.return_to(mark)
    made = trainer.train(samples, rollout_id=1)
    assert len(probed) == len(made) == 2
    # Only the first: the second step of a rollout begins on other weights.
    assert numbers(probed)[0] == numbers(made)[0]
    assert numbers(probed)[1] != numbers(made)[1]
    assert probed[0].placements == made[0].placements


def test_kept_weights_give_the_bits_of_then(folder, open_trainer):
    trainer = open_trainer(told(folder))
    samples = with_columns(random_samples(8), trainer, reference=True)
    seen = {}
    for number in range(4):
        seen[trainer.weights_version] = scores(trainer, samples)
        trainer.train(samples, rollout_id=number)
    assert trainer.kept_versions == (2, 3)
    before = trainer.digests()
    for version in trainer.kept_versions:
        with trainer.weights(version):
            assert scores(trainer, samples) == seen[version]
            trainer.log_probs(samples, weights="ref")
            assert scores(trainer, samples) == seen[version]
    assert scores(trainer, samples) not in seen.values()
    kept = {k: v for k, v in before.items() if "token_dispatcher" not in k}
    after = {k: v for k, v in trainer.digests().items() if "token_dispatcher" not in k}
    assert differences(kept, after) == ()
    with pytest.raises(ArgumentError, match="called 1"), trainer.weights(1):
        pass


def test_weights_that_do_not_fit_are_not_kept(folder, open_trainer):
    trainer = open_trainer(replace(told(folder), keep_weights_bytes=1000))
    samples = with_columns(random_samples(8), trainer, reference=False)
    trainer.train(samples, rollout_id=0)
    assert trainer.kept_versions == ()


def on_two_ranks(*, rank: int, world_size: int, folder: Path, layout: LayoutSettings):
    """A probe and a return on every rank, and what came of them."""
    trainer = MegatronTrainer(
        replace(
            told(folder, layout=layout),
            rank=rank,
            world_size=world_size,
            init_method=f"file://{folder}/meeting",
        )
    )
    trainer.open()
    mine = random_samples(8)
    if layout.tensor_model_parallel_size == 1:
        mine = mine[rank * 4 : rank * 4 + 4]
    samples = with_columns(mine, trainer, reference=True)
    trainer.train(samples, rollout_id=0)
    before, mark = trainer.digests(), trainer.mark()
    probed = numbers(trainer.gradients(samples, rollout_id=1))
    with trainer.weights(0):
        earlier = [c.tolist() for c in trainer.log_probs(samples).log_probs]
    trainer.return_to(mark)
    changed = differences(before, trainer.digests())
    made = numbers(trainer.train(samples, rollout_id=1))
    trainer.close()
    first = [np.asarray(sample.log_probs).tolist() for sample in samples]
    return changed, probed == made, earlier == first


@pytest.mark.parametrize(
    "layout",
    [
        LayoutSettings(tensor_model_parallel_size=2),
        LayoutSettings(use_distributed_optimizer=True),
    ],
    ids=["tp2", "dp2-distributed"],
)
def test_on_two_ranks(tmp_path, layout):
    save_model(random_model("qwen3", tied=False), tmp_path / "hf")
    found = run_ranks(on_two_ranks, world_size=2, folder=tmp_path, layout=layout)
    assert found == [((), True, True)] * 2
