"""The rollout in hand: its samples, and the columns made of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax.backends.training import RolloutInput
from relax.controller.partition import Share
from relax.engine.rollout.sample import Sample, SampleStatus
from relax.errors import EngineMismatch, InternalError
from relax.measure.reduction import Metrics
from relax.measure.rollout_metrics import RolloutColumns
from relax.measure.text import effective_length

TRAINABLE = (SampleStatus.COMPLETED, SampleStatus.TRUNCATED)
_EVIDENCE = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")


@dataclass(kw_only=True)
class RolloutInHand:
    """What is known of the rollout whose stages are running.

    Attributes:
        weights_version: Optimizer steps since the start that its responses run on.
        fingerprint: Of those weights.
        observed: Whether records are written and rules are asked.
        trainable: Whether any sample is; without one the train stages do nothing.
        kept: Positions whose token columns are recorded.
        metrics: What each stage measured, in order.
        passes: Which forward pass each column came from.
        columns: Of the record, one entry a sample; what the rules look at.
    """

    rollout_id: int
    weights_version: int
    fingerprint: str
    observed: bool = True
    trainable: bool = True
    began: float = field(default_factory=time.monotonic)
    samples: Sequence[Sample] = ()
    kept: frozenset[int] = frozenset()
    metrics: list[Metrics] = field(default_factory=list)
    passes: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Sequence[Any]] = field(default_factory=dict)

    def add_columns(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Joins log-prob columns to the sample columns, by sample index.

        Returns:
            The columns with one entry for *every* sample of the rollout, so that the
            files of a record can be joined row by row: null where a sample was not
            trained on.
        """
        by_index = {index: row for row, index in enumerate(rows["sample_index"])}
        indices = list(self.columns["sample_index"])
        places = [by_index.get(index) for index in indices]
        aligned = {
            name: [None if row is None else column[row] for row in places]
            for name, column in rows.items()
        }
        aligned["rollout_id"] = [self.rollout_id] * len(indices)
        aligned["sample_index"] = indices
        # True beside nulls says absent; False would say that there is more to fetch.
        aligned["tokens_kept"] = [kept is not False for kept in aligned["tokens_kept"]]
        for name in _EVIDENCE:
            if any(values is not None for values in aligned[name]):
                self.columns[name] = aligned[name]
        return aligned


def trainable_samples(samples: Sequence[Sample], key: str | None) -> list[Sample]:
    """Samples that can be trained on: finished, not empty, with a reward.

    Returns:
        They, in order; none when a person aborted the whole generation.

    Raises:
        EngineMismatch: There is none for another reason; the message says which.
    """
    found = [
        sample
        for sample in samples
        if sample.status in TRAINABLE
        and sample.response_length > 0
        and sample.scalar_reward(key) is not None
    ]
    aborted = any(sample.status is SampleStatus.ABORTED for sample in samples)
    if not found and not aborted:
        reasons = sorted({s.failure or str(s.status) for s in samples})
        raise EngineMismatch(
            f"no sample of the rollout can be trained on: {'; '.join(reasons)[:300]}"
        )
    return found


def statistics_columns(samples: Sequence[Sample], key: str | None) -> RolloutColumns:
    """The columns that upstream's rollout statistics need."""
    return RolloutColumns(
        rewards=[sample.scalar_reward(key) for sample in samples],
        group_index=[_number(sample.group_index) for sample in samples],
        effective_lengths=[
            effective_length(sample.response_length, sample.loss_mask)
            for sample in samples
        ],
        statuses=[str(sample.status) for sample in samples],
        responses=[sample.response for sample in samples],
        stop_reasons=[sample.stop_reason or None for sample in samples],
    )


def trainer_input(
    trainable: Sequence[Sample],
    *,
    share: Share,
    rollout: RolloutInHand,
    reward_key: str | None,
) -> RolloutInput:
    """What the training workers of one replica are given.

    Args:
        trainable: From `trainable_samples`.
        share: Which of them the replica trains on.
        rollout: The rollout in hand.
        reward_key: Key of the number when rewards are dicts.
    """
    kept = {rollout.samples[place].index for place in rollout.kept}
    own = [trainable[row] for row in share.rows]
    return RolloutInput(
        rollout_id=rollout.rollout_id,
        sample_index=[_number(s.index) for s in own],
        group_index=[_number(s.group_index) for s in own],
        tokens=[np.asarray(s.tokens, dtype=np.int64) for s in own],
        response_length=[s.response_length for s in own],
        loss_mask=[_mask(s) for s in own],
        rollout_log_probs=[_log_probs(s) for s in own],
        places=share.rows,
        step_sizes=share.step_sizes,
        all_rewards=[_reward(s, reward_key) for s in trainable],
        all_groups=[_number(s.group_index) for s in trainable],
        kept=frozenset(row for row, s in enumerate(own) if s.index in kept),
        observed=rollout.observed,
    )


def _log_probs(sample: Sample) -> np.ndarray[Any, Any] | None:
    if sample.rollout_log_probs is None:
        return None
    return np.asarray(sample.rollout_log_probs, dtype=np.float32)


def _reward(sample: Sample, key: str | None) -> float:
    reward = sample.scalar_reward(key)
    if reward is None:
        raise InternalError(f"sample {sample.index} is trained on without a reward")
    return reward


def _number(number: int | None) -> int:
    if number is None:
        raise EngineMismatch("the rollout function gave a sample without its index")
    return number


def _mask(sample: Sample) -> np.ndarray[Any, Any]:
    if sample.remove_sample:
        return np.zeros(sample.response_length, dtype=np.int8)
    if sample.loss_mask is None:
        return np.ones(sample.response_length, dtype=np.int8)
    return np.asarray(sample.loss_mask, dtype=np.int8)
