"""What a rank trained on, as the columns of a train dump, under upstream's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relax.backends.training import PackedColumn

Floats = NDArray[np.float32]


class TrainedSample(Protocol):
    """One sample after its train step; `relax.backends.megatron.step.batch`."""

    sample_index: int
    tokens: NDArray[np.int64]
    response_length: int
    loss_mask: NDArray[np.integer[Any]]
    rollout_log_probs: Floats | None
    reward: float
    group_index: int
    log_probs: Floats | None
    ref_log_probs: Floats | None
    advantages: Floats | None
    returns: Floats | None


def train_columns(
    samples: Sequence[TrainedSample],
    *,
    raw_rewards: Sequence[float],
    entropy: Sequence[Floats] | None,
) -> dict[str, Any]:
    """Columns of one rank, one entry a sample.

    Args:
        samples: In the order in which they were trained on.
        raw_rewards: Before normalisation.
        entropy: Of the log-prob pass; None when it was not asked for.

    Returns:
        Numbers as lists, arrays as `PackedColumn`; a column that no sample has is left
        out (this rank has no last pipeline stage, or the run has no reference).
    """
    arrays: dict[str, Sequence[NDArray[Any] | None]] = {
        "tokens": [sample.tokens for sample in samples],
        "loss_masks": [np.asarray(sample.loss_mask, np.int32) for sample in samples],
        "rollout_log_probs": [sample.rollout_log_probs for sample in samples],
        "log_probs": [sample.log_probs for sample in samples],
        "ref_log_probs": [sample.ref_log_probs for sample in samples],
        "advantages": [sample.advantages for sample in samples],
        "returns": [sample.returns for sample in samples],
        "entropy": list(entropy or ()),
    }
    packed = {
        name: PackedColumn.pack(column)
        for name, column in arrays.items()
        if any(value is not None for value in column)
    }
    return {
        **packed,
        "total_lengths": [len(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "rewards": [sample.reward for sample in samples],
        "raw_reward": list(raw_rewards),
        "sample_indices": [sample.sample_index for sample in samples],
        "group_index": [sample.group_index for sample in samples],
    }


def unpacked(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns with arrays a sample again."""
    return {
        name: column.unpack() if isinstance(column, PackedColumn) else column
        for name, column in columns.items()
    }
