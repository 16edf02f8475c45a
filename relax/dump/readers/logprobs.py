"""A trained sample → its row of ``logprobs.arrow``, with what is measured on it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from relax.dump.readers.rollout import Row, masked_mean
from relax.dump.readers.train import TrainSample
from relax.dump.readers.values import Floats, Mask
from relax.measure.difference import TokenDifference, compare_tokens
from relax.measure.nonfinite import count_nonfinite

COLUMNS: Final = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")
_COUNTED: Final = ("log_probs", "ref_log_probs", "rollout_log_probs")


def logprob_row(
    sample: TrainSample | None, *, rollout_id: int, sample_index: int
) -> Row:
    """Columns of one row (`relax.records.schema.LOGPROBS`).

    Args:
        sample: With whole columns; None for a sample of the rollout that no file here
            was trained on, which is "not carried".
        rollout_id: The rollout.
        sample_index: As in ``samples.arrow``.
    """
    row: Row = {"rollout_id": rollout_id, "sample_index": sample_index}
    if sample is None:
        return {**row, "tokens_kept": False}
    mask = sample.mask
    if mask is None:
        mask = np.ones(sample.response, np.int8)
    log_probs = sample.floats.get("log_probs")
    reference = _compare(log_probs, sample.floats.get("ref_log_probs"), mask)
    engine = _compare(log_probs, sample.floats.get("rollout_log_probs"), mask)
    return {
        **row,
        "tokens_kept": True,
        **{name: sample.floats.get(name) for name in COLUMNS},
        "normalized_reward": sample.normalized_reward,
        "log_prob_mean": masked_mean(log_probs, mask),
        "entropy_mean": masked_mean(sample.floats.get("entropy"), mask),
        "ref_unequal": reference.unequal if reference else None,
        "ref_max_abs": reference.max_abs if reference else None,
        "ref_max_position": _position(reference),
        "rollout_mean_abs": engine.mean_abs.value if engine else None,
        "rollout_max_abs": engine.max_abs if engine else None,
        "rollout_max_position": _position(engine),
        "num_nonfinite": _nonfinite(sample, mask),
    }


def _compare(
    one: Floats | None, other: Floats | None, mask: Mask
) -> TokenDifference | None:
    if one is None or other is None:
        return None
    return compare_tokens(one, other, mask)


def _position(difference: TokenDifference | None) -> int | None:
    place = difference.max_abs_place if difference else None
    return place.position if place else None


def _nonfinite(sample: TrainSample, mask: Mask) -> int | None:
    columns: list[Any] = [sample.floats.get(name) for name in _COUNTED]
    present = [column for column in columns if column is not None]
    if not present:
        return None
    return sum(
        count_nonfinite(column, mask=mask).total
        for column in present
        # Nearly always all are finite, and then nothing needs to be counted.
        if not np.isfinite(column).all()
    )
