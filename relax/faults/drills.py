"""Drills: a real run with one known fault (``--inject-fault NAME``).

A drill teaches a person what a fault looks like, and is the test that triage finds it.
Each is injected at the very place where the real fault would arise; nothing here is
imported by a run without a drill's name.

    garbled-weights           the conversion to the engine's names loses the final norm
    stale-weights             the engine keeps the weights of the first update
    tensor-not-sent           one tensor is not sent
    tensor-transposed         one square tensor is sent transposed
    tensor-stale              one tensor stays that of the first update
    ref-mismatch              one reference log-prob is one unit in the last place off
    nondeterministic-logprob  each pass adds noise of 1e-6
    temperature-mismatch      the trainer scores at temperature 0.7 of what was sampled
    shifted-logprob           the trainer's log-probs are one position late
    nan-grad                  one advantage is NaN from rollout 1 on
    zero-std-rewards          every reward of a group is the same
    hung-rank                 rank 0 sleeps for ever inside the train step of rollout 1
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from relax.errors import ArgumentError

Column = np.ndarray[Any, Any]

BUILT = (
    "garbled-weights",
    "stale-weights",
    "tensor-not-sent",
    "tensor-transposed",
    "tensor-stale",
    "ref-mismatch",
    "nondeterministic-logprob",
    "temperature-mismatch",
    "shifted-logprob",
    "nan-grad",
    "zero-std-rewards",
    "hung-rank",
)
ONE_TENSOR = ("tensor-not-sent", "tensor-transposed", "tensor-stale")
FINAL_NORM = "model.norm.weight"
NOISE = 1e-6
TEMPERATURE_RATIO = 0.7


class Drill:
    """One fault, asked at each place where it could be injected.

    Args:
        name: One of `BUILT`; None injects nothing anywhere.

    Raises:
        ArgumentError: The drill is not built yet.
    """

    def __init__(self, name: str | None) -> None:
        if name is not None and name not in BUILT:
            raise ArgumentError(
                f"--inject-fault {name}: this drill is not available yet",
                hint=f"available are {', '.join(BUILT)}",
            )
        self.name = name
        self._random = np.random.default_rng(0)
        self._first: dict[str, Any] = {}
        self._target = ""

    @property
    def trainer_temperature_ratio(self) -> float:
        """Factor on the temperature at which the trainer scores."""
        return TEMPERATURE_RATIO if self.name == "temperature-mismatch" else 1.0

    def converted(self, bucket: dict[str, Any]) -> dict[str, Any]:
        """Weights as the conversion gives them; ``{HF name: tensor}``."""
        if self.name != "garbled-weights" or FINAL_NORM not in bucket:
            return bucket
        return {**bucket, FINAL_NORM: bucket[FINAL_NORM] * 0}

    def sent(self, bucket: dict[str, Any]) -> dict[str, Any]:
        """Weights as they arrive at the engine."""
        match self.name:
            case "stale-weights":
                return self._stale(bucket)
            case name if name in ONE_TENSOR:
                return self._one_changed(bucket)
            case _:
                return bucket

    def after_sending(self) -> None:
        """Called when all weights of an update are on their way.

        Raises:
            ArgumentError: The fault was to be in one tensor, and the model has none
                that fits.
        """
        if self.name in ONE_TENSOR and not self._target:
            raise ArgumentError(
                f"--inject-fault {self.name}: the model has no square tensor",
                hint="choose another drill for this model",
            )

    def _stale(self, bucket: dict[str, Any]) -> dict[str, Any]:
        for name, tensor in bucket.items():
            if name not in self._first:
                self._first[name] = tensor.clone()
        return {name: self._first[name] for name in bucket}

    def _one_changed(self, bucket: dict[str, Any]) -> dict[str, Any]:
        squares = (n for n, t in bucket.items() if t.ndim == 2 and len({*t.shape}) == 1)
        self._target = self._target or next(squares, "")
        if self._target not in bucket:
            return bucket
        tensor = bucket[self._target]
        match self.name:
            case "tensor-not-sent":
                return {n: t for n, t in bucket.items() if n != self._target}
            case "tensor-transposed":
                return {**bucket, self._target: tensor.T.contiguous()}
            case _:
                return {**bucket, **self._stale({self._target: tensor})}

    def scored(self, column: str, values: Sequence[Column]) -> list[Column]:
        """Log-probs as they leave a pass; each float32 [R].

        Args:
            column: ``log_probs`` or ``ref_log_probs``.
            values: One array a sample.
        """
        changed = [np.array(array) for array in values]
        if self.name == "ref-mismatch" and column == "ref_log_probs":
            first = next(array for array in changed if array.size)
            first[0] = np.nextafter(first[0], np.float32(-np.inf))
        elif self.name == "nondeterministic-logprob":
            for array in changed:
                noise = self._random.normal(0.0, NOISE, array.shape)
                array += noise.astype(np.float32)
        elif self.name == "shifted-logprob":
            changed = [np.roll(array, 1) for array in changed]
        return changed

    def rewards(self, rewards: Sequence[float]) -> list[float]:
        """Rewards before group normalisation."""
        if self.name == "zero-std-rewards":
            return [1.0] * len(rewards)
        return list(rewards)

    def advantages(self, values: Sequence[Column], *, rollout_id: int) -> list[Column]:
        """Advantages before the train step; each float32 [R]."""
        changed = [np.array(array) for array in values]
        if self.name == "nan-grad" and rollout_id >= 1:
            next(array for array in changed if array.size)[0] = np.nan
        return changed

    def before_train_step(self, *, rank: int, rollout_id: int) -> None:
        """Called on each rank inside the train stage."""
        if self.name == "hung-rank" and rank == 0 and rollout_id >= 1:
            sleep_for_ever()


def sleep_for_ever() -> None:
    """A hang with a name, so that a stack shows where a rank stands."""
    while True:
        time.sleep(3600)
