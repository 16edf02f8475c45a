"""Saved and resumed on every kind of layout: the same bits as without the break."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from processes import run_ranks
from tiny_models import random_model, random_samples, save_model, settings, with_columns

from relax.arguments.groups import BatchSettings, LayoutSettings, MegatronSettings
from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.trainer import MegatronTrainer

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tp2": ("qwen3", {"tensor_model_parallel_size": 2}),
    "pp2": ("qwen3", {"pipeline_model_parallel_size": 2}),
    "dp2-zero": ("qwen3", {"use_distributed_optimizer": True}),
    "ep2": ("qwen3_moe", {"expert_model_parallel_size": 2}),
    "ep2-zero": (
        "qwen3_moe",
        {"expert_model_parallel_size": 2, "use_distributed_optimizer": True},
    ),
}


@dataclass
class Resumed:
    """Fingerprints of the weights, and what the last step measured."""

    saved: str
    restored: str
    after: str
    after_resume: str
    metrics: tuple[Any, Any]


def save_and_resume(told: TrainerSettings, scratch: Path) -> Resumed:
    """One step, a checkpoint, a second step; the checkpoint again, in a new trainer."""
    trainer = MegatronTrainer(told)
    trainer.open()
    try:
        replicas, replica = trainer.layout.data_size, trainer.layout.data_rank
        mine = [s for s in random_samples(8) if s.sample_index % replicas == replica]
        samples = with_columns(mine, trainer, reference=False)
        trainer.train(samples, rollout_id=0)
        saved = trainer.fingerprint()
        trainer.save(scratch)
        (straight,) = trainer.train(samples, rollout_id=1)
        after = trainer.fingerprint()
    finally:
        trainer.close()
    resumed = MegatronTrainer(
        replace(
            told,
            checkpoint=replace(told.checkpoint, load=scratch),
            init_method=f"{told.init_method}-again",
        )
    )
    resumed.open()
    try:
        assert resumed.weights_version == 1
        restored = resumed.fingerprint()
        (again,) = resumed.train(samples, rollout_id=1)
        return Resumed(
            saved=saved,
            restored=restored,
            after=after,
            after_resume=resumed.fingerprint(),
            metrics=(straight.metrics, again.metrics),
        )
    finally:
        resumed.close()


def run_all(*, rank: int, world_size: int, folder: Path) -> dict[str, Resumed]:
    found = {}
    for name, (family, layout) in LAYOUTS.items():
        told = settings(
            folder / family,
            layout=LayoutSettings(**layout),
            batch=BatchSettings(
                rollout_batch_size=2,
                n_samples_per_prompt=4,
                global_batch_size=8,
                micro_batch_size=2,
            ),
            megatron=MegatronSettings(optimizer={"lr": 1e-3}),
        )
        here = replace(
            told,
            rank=rank,
            world_size=world_size,
            init_method=f"file://{folder}/meeting-{name}",
        )
        found[name] = save_and_resume(here, folder / f"checkpoint-{name}")
    return found


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    for family in {family for family, _ in LAYOUTS.values()}:
        save_model(random_model(family, tied=False), folder / family / "hf")
    return run_ranks(run_all, world_size=2, folder=folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_resumed_layout_goes_on_bit_for_bit(layout, on_two_ranks):
    first, second = (outcomes[layout] for outcomes in on_two_ranks)
    assert first == second
    assert first.saved == first.restored
    assert first.after == first.after_resume != first.saved
    straight, again = first.metrics
    assert straight == again
