"""Fixtures: one rank, in this process, real megatron-core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_models import random_model, save_model

from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.trainer import MegatronTrainer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def open_trainer() -> Iterator[Callable[[TrainerSettings], MegatronTrainer]]:
    """Opens trainers one after the other; opening the next closes the one before."""
    opened: list[MegatronTrainer] = []

    def opener(settings: TrainerSettings) -> MegatronTrainer:
        while opened:
            opened.pop().close()
        trainer = MegatronTrainer(settings)
        opened.append(trainer)
        trainer.open()
        return trainer

    yield opener
    for trainer in opened:
        trainer.close()


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untied tiny Llama in ``hf``."""
    folder = tmp_path_factory.mktemp("llama")
    save_model(random_model("llama", tied=False), folder / "hf")
    return folder
