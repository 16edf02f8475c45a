"""What only train dumps can say: rows of samples without a rollout dump, and places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from relax.dump.manifest import Manifest
from relax.dump.readers import values
from relax.dump.readers.join import JoinedStep
from relax.dump.readers.rollout import UNKNOWN_STATUS, Row, masked_mean
from relax.dump.readers.train import TrainSample


def sample_indices(samples: Sequence[TrainSample]) -> list[int] | None:
    """Each sample's number over the whole run; None when not every one has its own."""
    indices = [sample.index for sample in samples if sample.index is not None]
    return indices if len(set(indices)) == len(samples) else None


def sample_row(sample: TrainSample, *, rollout_id: int, sample_index: int) -> Row:
    """A row of ``samples.arrow`` from what a rank trained on.

    Args:
        sample: With whole columns.
        rollout_id: The rollout.
        sample_index: The row's number.
    """
    prompt, response = _texts(sample)
    log_probs = sample.floats.get("rollout_log_probs")
    mask = sample.mask
    return {
        "rollout_id": rollout_id,
        "sample_index": sample_index,
        "group_index": sample.group,
        "status": _status(sample.truncated),
        "reward": sample.reward,
        "prompt": prompt,
        "response": response,
        "prompt_length": sample.total - sample.response,
        "response_length": sample.response,
        "total_length": sample.total,
        "num_masked": None if mask is None else int(np.count_nonzero(mask == 0)),
        "tokens_kept": True,
        "tokens": sample.tokens,
        "loss_mask": mask,
        "rollout_log_probs": log_probs,
        "rollout_log_prob_mean": masked_mean(log_probs, mask),
    }


def _status(truncated: bool | None) -> str:  # noqa: FBT001 - a tri-state of the dump
    if truncated is None:
        return UNKNOWN_STATUS
    return "truncated" if truncated else "completed"


def _texts(sample: TrainSample) -> tuple[str | None, str | None]:
    decoded = sample.decoded
    if type(decoded) is not list or len(decoded) != sample.total:
        return None, None
    words = [word if type(word) is str else "" for word in decoded]
    start = sample.total - sample.response
    return values.text("".join(words[:start])), values.text("".join(words[start:]))


def place_rows(
    step: JoinedStep,
    indices: Sequence[int | None],
    *,
    rollout_id: int,
    manifest: Manifest | None,
) -> Iterator[Row]:
    """Rows of ``train.arrow``, where the dump or its manifest has them.

    Args:
        step: The joined files.
        indices: ``sample_index`` of each of its samples; None for one that has no row.
        rollout_id: The rollout.
        manifest: That of the dump, when it has one.
    """
    for batch in manifest.micro_batches if manifest else ():
        for place, sample_index in enumerate(batch.samples):
            yield {
                "rollout_id": rollout_id,
                "sample_index": sample_index,
                "step_id": batch.step_id,
                "rank": batch.rank,
                "micro_batch": batch.number,
                "place": place,
                "padded_length": batch.padded_length,
            }
    if manifest and manifest.micro_batches:
        return
    for found in step.places:
        index = indices[found.position]
        if index is None:
            continue
        yield {
            "rollout_id": rollout_id,
            "sample_index": index,
            "step_id": found.step_id,
            "rank": found.rank,
            "micro_batch": found.micro_batch,
            "place": found.place,
            # Packed sequences: a row is as long as its sample.
            "padded_length": step.samples[found.position].total,
        }
