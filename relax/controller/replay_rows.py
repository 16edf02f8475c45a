"""Rows of the step record of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relax.controller.comparison import TOKEN_COLUMNS, Column
from relax.controller.replay_source import ReplaySource
from relax.engine.rollout.sample import Sample
from relax.observe.logprob_rows import SampleLogProbs, logprob_rows
from relax.observe.sample_rows import sample_rows


@dataclass(frozen=True, kw_only=True)
class ReplayedRows:
    """Columns of ``samples.arrow`` and ``logprobs.arrow``, in the same order."""

    samples: Mapping[str, list[Any]]
    logprobs: Mapping[str, list[Any]]


def replayed_rows(
    source: ReplaySource,
    columns: Mapping[str, Column],
    *,
    rewards: Mapping[int, float],
    reward_key: str | None,
) -> ReplayedRows:
    """The samples that were computed again, and what was computed.

    Args:
        source: What was replayed.
        columns: Per-token columns, by sample index.
        rewards: Normalised rewards, by sample index.
        reward_key: Key of the number when rewards are dicts.
    """
    computed = columns["log_probs"]
    samples = [sample for sample in source.samples if sample.index in computed]
    everything = range(len(samples))
    return ReplayedRows(
        samples=sample_rows(
            samples,
            rollout_id=source.rollout_id,
            kept=everything,
            reward_key=reward_key,
        ),
        logprobs=logprob_rows(
            [_scored(sample, columns, rewards=rewards) for sample in samples],
            rollout_id=source.rollout_id,
            kept=everything,
        ),
    )


def _scored(
    sample: Sample, columns: Mapping[str, Column], *, rewards: Mapping[int, float]
) -> SampleLogProbs:
    index = -1 if sample.index is None else sample.index
    mask, given = sample.loss_mask, sample.rollout_log_probs
    own = {name: column[index] for name, column in columns.items() if index in column}
    every = np.ones(sample.response_length, np.int8)
    return SampleLogProbs(
        sample_index=index,
        loss_mask=every if mask is None else np.asarray(mask, np.int8),
        normalized_reward=rewards[index],
        rollout_log_probs=None if given is None else np.asarray(given, np.float32),
        **{name: own.get(name) for name in TOKEN_COLUMNS},
    )
