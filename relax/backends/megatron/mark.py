"""A mark: everything that training can change, copied to the host, to come back to.

    mark = take_mark(opened)
    …                           probe, or train some steps
    return_to(opened, mark)     bit for bit as it was

Contents of storages are copied whole; what holds them (the optimizer's state by
parameter, ``.grad`` attributes, counters) is noted beside them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relax.backends.megatron.checkpoint import inner_optimizers
from relax.backends.megatron.cpu import has_gpu
from relax.backends.megatron.mcore import get_cuda_rng_tracker
from relax.backends.megatron.opened import OpenedTrainer
from relax.backends.megatron.reachable import digests_of, holders_of, storages_of
from relax.backends.megatron.reference import SwappedReference
from relax.backends.megatron.step.batch import TrainSample
from relax.backends.training import RolloutInput
from relax.faults.drills import Drill

_NOTED = (int, float, bool, str, type(None), Tensor)


@dataclass(frozen=True, kw_only=True)
class RandomStates:
    """Every random state of this process that a rank can draw from."""

    python: Any
    numpy: Any
    torch: Tensor
    cuda: Tensor | None
    megatron: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class TrainerMark:
    """A trainer's state at one moment.

    Attributes:
        contents: ``(live bytes, copy on the host)`` of each storage.
        gradients: Each parameter with its ``.grad`` of then.
        states: By inner optimizer: its state by parameter, and its groups' settings.
        attributes: ``(object, its plain ones)``: steps of a schedule, and the like.
        random: Random states.
        weights_version: Optimizer steps since the start.
        passes: Forward passes since the start.
        kept: Earlier versions of the weights that were kept.
    """

    contents: tuple[tuple[Tensor, Tensor], ...]
    gradients: tuple[tuple[Tensor, Tensor | None], ...]
    states: tuple[tuple[dict[Tensor, dict[str, Any]], list[dict[str, Any]]], ...]
    attributes: tuple[tuple[Any, dict[str, Any]], ...]
    random: RandomStates
    weights_version: int
    passes: int
    kept: Mapping[int, SwappedReference]

    @property
    def num_bytes(self) -> int:
        """Bytes that the mark takes on the host."""
        return sum(copy.numel() for _, copy in self.contents)


@dataclass(frozen=True, kw_only=True)
class WorkerMark:
    """A worker's state at one moment: its trainer, and the rollout in hand."""

    trainer: TrainerMark
    input: RolloutInput | None
    samples: list[TrainSample]
    entropy: list[np.ndarray[Any, Any]] | None
    drill: Drill


def take_mark(opened: OpenedTrainer) -> TrainerMark:
    """Copies a trainer's state; the reference never changes and is left out."""
    inner = inner_optimizers(opened.optimizer.optimizer)
    changing = [opened.scoring, opened.optimizer]
    return TrainerMark(
        contents=tuple(
            (found.content, found.content.to("cpu", copy=True))
            for found in storages_of(changing)
        ),
        gradients=tuple((tensor, tensor.grad) for tensor in _optimised(opened)),
        states=tuple(
            (
                {parameter: dict(state) for parameter, state in one.state.items()},
                [_without_params(group) for group in one.param_groups],
            )
            for one in inner
        ),
        attributes=tuple((holder, _noted(holder)) for holder in holders_of(changing)),
        random=_random_states(),
        weights_version=opened.weights_version,
        passes=opened.passes,
        kept=dict(opened.kept.by_version),
    )


@torch.no_grad()
def return_to(opened: OpenedTrainer, mark: TrainerMark) -> None:
    """Brings a trainer back to a mark that was taken of it."""
    inner = inner_optimizers(opened.optimizer.optimizer)
    for one, (states, groups) in zip(inner, mark.states, strict=True):
        one.state.clear()
        one.state.update({p: dict(state) for p, state in states.items()})
        for group, values in zip(one.param_groups, groups, strict=True):
            group.update(values)
    for tensor, gradient in mark.gradients:
        tensor.grad = gradient
    for live, copy in mark.contents:
        live.copy_(copy)
    for holder, values in mark.attributes:
        for name in _noted(holder).keys() - values.keys():
            delattr(holder, name)
        vars(holder).update(values)
    _restore_random(mark.random)
    opened.weights_version = mark.weights_version
    opened.passes = mark.passes
    opened.kept.by_version = dict(mark.kept)


def state_digests(opened: OpenedTrainer) -> dict[str, str]:
    """``{path: sha256}`` of every tensor of a trainer, and of its random states."""
    states = _random_states()
    return digests_of({"trainer": opened, "cpu": states.torch, "cuda": states.cuda})


def _optimised(opened: OpenedTrainer) -> Iterator[Tensor]:
    yield from opened.part.parameters.values()
    for inner in inner_optimizers(opened.optimizer.optimizer):
        for group in inner.param_groups:
            yield from group["params"]


def _without_params(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _noted(holder: Any) -> dict[str, Any]:
    """Attributes that are numbers, texts or tensors."""
    return {
        name: value for name, value in vars(holder).items() if isinstance(value, _NOTED)
    }


def _random_states() -> RandomStates:
    gpu = has_gpu()
    return RandomStates(
        python=random.getstate(),
        numpy=np.random.get_state(),
        torch=torch.get_rng_state(),
        cuda=torch.cuda.get_rng_state() if gpu else None,
        megatron=dict(get_cuda_rng_tracker().get_states()) if gpu else None,
    )


def _restore_random(states: RandomStates) -> None:
    random.setstate(states.python)
    np.random.set_state(states.numpy)
    torch.set_rng_state(states.torch)
    if states.cuda is not None:
        torch.cuda.set_rng_state(states.cuda)
    if states.megatron is not None:
        get_cuda_rng_tracker().set_states(states.megatron)
