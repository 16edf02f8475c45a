"""Samples of a rollout → columns of ``samples.arrow`` and of ``live.arrows``."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from relax.engine.rollout.sample import Sample, SampleStatus


def choose_kept(samples: Sequence[Sample], *, most: int) -> frozenset[int]:
    """Which samples keep their token columns in a live record.

    All, when they fit. Else the first, the failed, the longest, then in order.

    Args:
        samples: The rollout's samples.
        most: How many may keep them.

    Returns:
        Positions in ``samples``.
    """
    if len(samples) <= most:
        return frozenset(range(len(samples)))

    def rank(position: int) -> tuple[bool, bool, int]:
        sample = samples[position]
        failed = sample.status is SampleStatus.FAILED
        return (position != 0, not failed, -sample.response_length)

    return frozenset(sorted(range(len(samples)), key=rank)[:most])


def sample_rows(
    samples: Sequence[Sample],
    *,
    rollout_id: int,
    kept: Collection[int],
    reward_key: str | None,
) -> dict[str, list[Any]]:
    """Columns of ``samples.arrow`` (`relax.records.schema.SAMPLES`).

    Args:
        samples: In the record's row order.
        rollout_id: The rollout.
        kept: Positions whose token columns are carried; the others are marked by
            ``tokens_kept`` false, which is not the same as absent.
        reward_key: Key of the number when rewards are dicts.
    """
    rows = [
        _row(sample, carried=position in kept, reward_key=reward_key)
        for position, sample in enumerate(samples)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return {"rollout_id": [rollout_id] * len(rows), **columns}


def _row(sample: Sample, *, carried: bool, reward_key: str | None) -> dict[str, Any]:
    log_probs = _floats(sample.rollout_log_probs)
    mask = sample.loss_mask
    return {
        "sample_index": sample.index,
        "group_index": sample.group_index,
        "status": str(sample.status),
        "stop_reason": sample.stop_reason or None,
        "failure": sample.failure or None,
        "reward": sample.scalar_reward(reward_key),
        "label": sample.label,
        "prompt": _text(sample.prompt),
        "response": _text(sample.response),
        "prompt_length": len(sample.tokens) - sample.response_length,
        "response_length": sample.response_length,
        "total_length": len(sample.tokens),
        "num_masked": None if mask is None else mask.count(0),
        "weight_versions": sample.weight_versions,
        "tokens_kept": carried,
        "tokens": sample.tokens if carried else None,
        "loss_mask": mask if carried else None,
        "rollout_log_probs": log_probs if carried else None,
        "rollout_log_prob_mean": _mean(log_probs, mask),
        "metadata": json.dumps(sample.metadata, ensure_ascii=False, default=repr),
    }


def _floats(values: Any) -> np.ndarray[Any, Any] | None:
    return None if values is None else np.asarray(values, dtype=np.float32)


def _mean(values: Any, mask: list[int] | None) -> float | None:
    if values is None or not values.size:
        return None
    chosen = values if mask is None else values[np.asarray(mask, dtype=bool)]
    return float(chosen.sum(dtype=np.float64) / chosen.size) if chosen.size else None


def _text(text: Any) -> str:
    # Messages stay readable; a lone surrogate cannot be stored as UTF-8.
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False, default=repr)
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
