"""Log-probs, entropy and advantages → columns of ``logprobs.arrow``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax.measure.row_difference import (
    Bools,
    Float64s,
    Int64s,
    Rows,
    compare_rows,
)
from relax.observe.train_columns import TrainedSample

Column = NDArray[np.float32] | None


@dataclass(frozen=True, kw_only=True)
class SampleLogProbs:
    """One sample as the log-prob stages leave it; every array is float32 [R].

    Attributes:
        sample_index: The sample's own number.
        loss_mask: [R].
        normalized_reward: After group normalisation.
    """

    sample_index: int
    loss_mask: NDArray[Any]
    normalized_reward: float | None
    rollout_log_probs: Column
    log_probs: Column
    ref_log_probs: Column
    entropy: Column
    advantages: Column
    returns: Column

    @classmethod
    def of(cls, sample: TrainedSample, *, entropy: Column) -> SampleLogProbs:
        """From a sample that the trainer has scored."""
        return cls(
            sample_index=sample.sample_index,
            loss_mask=np.asarray(sample.loss_mask),
            normalized_reward=sample.reward,
            rollout_log_probs=sample.rollout_log_probs,
            log_probs=sample.log_probs,
            ref_log_probs=sample.ref_log_probs,
            entropy=entropy,
            advantages=sample.advantages,
            returns=sample.returns,
        )


_CARRIED = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")


def logprob_rows(
    samples: Sequence[SampleLogProbs], *, rollout_id: int, kept: Collection[int]
) -> dict[str, list[Any]]:
    """Columns of ``logprobs.arrow`` (`relax.records.schema.LOGPROBS`).

    Args:
        samples: This rank's samples, in the record's row order.
        rollout_id: The rollout.
        kept: Positions whose token columns are carried.
    """
    if not samples:
        return {}
    carried = [position in kept for position in range(len(samples))]
    tokens = {
        name: [
            getattr(sample, name) if carry else None
            for sample, carry in zip(samples, carried, strict=True)
        ]
        for name in _CARRIED
    }
    return {
        "rollout_id": [rollout_id] * len(samples),
        "sample_index": [sample.sample_index for sample in samples],
        "tokens_kept": carried,
        **tokens,
        "normalized_reward": [sample.normalized_reward for sample in samples],
        **_measured(samples),
    }


def _measured(samples: Sequence[SampleLogProbs]) -> dict[str, list[Any]]:
    rows = Rows.of([sample.loss_mask for sample in samples])
    log_probs = rows.column([sample.log_probs for sample in samples])
    reference = rows.column([sample.ref_log_probs for sample in samples])
    engine = rows.column([sample.rollout_log_probs for sample in samples])
    entropy = rows.column([sample.entropy for sample in samples])
    of_reference = compare_rows(rows, log_probs, reference)
    of_engine = compare_rows(rows, log_probs, engine)
    return {
        "log_prob_mean": _mean(rows, log_probs),
        "entropy_mean": _mean(rows, entropy),
        "ref_unequal": of_reference.unequal,
        "ref_max_abs": of_reference.max_abs,
        "ref_max_position": of_reference.position,
        "rollout_mean_abs": of_engine.mean_abs,
        "rollout_max_abs": of_engine.max_abs,
        "rollout_max_position": of_engine.position,
        "num_nonfinite": np.sum(
            [_nonfinite(rows, column) for column in (log_probs, reference, engine)],
            axis=0,
        ).tolist(),
    }


def _mean(rows: Rows, column: tuple[Float64s, Bools]) -> list[float | None]:
    values, there = column
    return rows.averages(values, rows.keep & there[rows.owner])


def _nonfinite(rows: Rows, column: tuple[Float64s, Bools]) -> Int64s:
    values, there = column
    return rows.count(rows.keep & there[rows.owner] & ~np.isfinite(values))
