"""Which experts each token of a mixture of experts was sent to.

Two layouts that round differently may send a token to another expert where two of them
are nearly as good. Such a token's numbers have no reason to be equal, so it is counted
apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from megatron.core.transformer.moe.router import TopKRouter
from numpy.typing import NDArray

from relax.backends.megatron.convert.weights import unwrap
from relax.backends.megatron.step.batch import MicroBatch
from relax.backends.megatron.step.forward import ScoringModel

Choices = dict[tuple[int, int], NDArray[np.int8]]
"""(sample, layer) → [T, experts]: 1 chosen, 0 not; -1 where this rank has not seen it.
"""


@contextmanager
def recorded_choices() -> Iterator[Choices]:
    """Records what all routers of this process choose for real tokens."""
    found: Choices = {}
    forward, run = TopKRouter.forward, ScoringModel.run
    at_work: list[tuple[ScoringModel, MicroBatch]] = []

    def noted_run(self: ScoringModel, batch: MicroBatch) -> Any:
        at_work.append((self, batch))
        try:
            return run(self, batch)
        finally:
            at_work.pop()

    def noted_forward(self: TopKRouter, *args: Any, **settings: Any) -> Any:
        probs, chosen = forward(self, *args, **settings)
        scoring, batch = at_work[-1]
        _note(found, chosen.numpy(), batch, scoring, layer=self.layer_number)
        return probs, chosen

    TopKRouter.forward, ScoringModel.run = noted_forward, noted_run
    try:
        yield found
    finally:
        TopKRouter.forward, ScoringModel.run = forward, run


def _note(
    found: Choices,
    chosen: NDArray[np.bool_],
    batch: MicroBatch,
    scoring: ScoringModel,
    *,
    layer: int,
) -> None:
    """Takes one router's choices, [positions · rows, experts], apart by sample."""
    rows, length = batch.tokens_BS.shape
    layout = scoring.layout
    whole = np.full((length, rows, chosen.shape[-1]), -1, dtype=np.int8)
    here = slice(None)
    if unwrap(scoring.model).config.sequence_parallel:
        part = length // layout.tensor_size
        here = slice(part * layout.tensor_rank, part * (layout.tensor_rank + 1))
    whole[here] = chosen.reshape(-1, rows, chosen.shape[-1])
    start = 0
    for row, sample in enumerate(batch.samples):
        size = len(sample.tokens)
        if batch.segments is None:
            own = whole[:size, row]
        else:
            own, start = whole[start : start + size, 0], start + size
        found[sample.sample_index, layer] = own


def joined_choices(ranks: list[Choices]) -> Choices:
    """What all ranks of a layout saw; every token is known then."""
    joined: Choices = {}
    for rank in ranks:
        for key, own in rank.items():
            joined[key] = np.maximum(joined.get(key, own), own)
    return joined


def chosen_otherwise(found: Choices, expected: Choices) -> tuple[int, int]:
    """Tokens that some layer sent to other experts, and all tokens."""
    assert found.keys() == expected.keys()
    unequal: dict[int, NDArray[np.bool_]] = {}
    for (sample, layer), own in expected.items():
        other = found[sample, layer]
        assert other.min() >= 0, (sample, layer)
        differs = (own != other).any(axis=-1)
        unequal[sample] = unequal.get(sample, differs) | differs
    return (
        sum(int(differs.sum()) for differs in unequal.values()),
        sum(differs.size for differs in unequal.values()),
    )
