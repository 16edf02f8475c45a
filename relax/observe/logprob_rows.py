"""Log-probs, entropy and advantages → columns of ``logprobs.arrow``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax.measure.difference import TokenDifference, compare_tokens
from relax.measure.nonfinite import count_nonfinite

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


_COLUMNS = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")


def logprob_rows(
    samples: Sequence[SampleLogProbs], *, rollout_id: int, kept: Collection[int]
) -> dict[str, list[Any]]:
    """Columns of ``logprobs.arrow`` (`relax.records.schema.LOGPROBS`).

    Args:
        samples: This rank's samples, in the record's row order.
        rollout_id: The rollout.
        kept: Positions whose token columns are carried.
    """
    rows = [
        _row(sample, carried=position in kept)
        for position, sample in enumerate(samples)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return {"rollout_id": [rollout_id] * len(rows), **columns}


def _row(sample: SampleLogProbs, *, carried: bool) -> dict[str, Any]:
    reference = _compare(sample, sample.ref_log_probs)
    engine = _compare(sample, sample.rollout_log_probs)
    tokens = {name: getattr(sample, name) if carried else None for name in _COLUMNS}
    return {
        "sample_index": sample.sample_index,
        "tokens_kept": carried,
        **tokens,
        "normalized_reward": sample.normalized_reward,
        "log_prob_mean": _mean(sample.log_probs, sample.loss_mask),
        "entropy_mean": _mean(sample.entropy, sample.loss_mask),
        "ref_unequal": reference.unequal if reference else None,
        "ref_max_abs": reference.max_abs if reference else None,
        "ref_max_position": _position(reference),
        "rollout_mean_abs": engine.mean_abs.value if engine else None,
        "rollout_max_abs": engine.max_abs if engine else None,
        "rollout_max_position": _position(engine),
        "num_nonfinite": _nonfinite(sample),
    }


def _compare(sample: SampleLogProbs, other: Column) -> TokenDifference | None:
    if sample.log_probs is None or other is None:
        return None
    return compare_tokens(
        sample.log_probs,
        other,
        sample.loss_mask,
        sample_index=sample.sample_index,
    )


def _position(difference: TokenDifference | None) -> int | None:
    place = difference.max_abs_place if difference else None
    return place.position if place else None


def _nonfinite(sample: SampleLogProbs) -> int:
    columns = (sample.log_probs, sample.ref_log_probs, sample.rollout_log_probs)
    return sum(
        count_nonfinite(
            column, mask=sample.loss_mask, sample_index=sample.sample_index
        ).total
        for column in columns
        # Nearly always all are finite, and then nothing needs to be counted.
        if column is not None and not np.isfinite(column).all()
    )


def _mean(values: Column, mask: NDArray[Any]) -> float | None:
    if values is None:
        return None
    chosen = values[mask.astype(bool)]
    return float(chosen.sum(dtype=np.float64) / chosen.size) if chosen.size else None
