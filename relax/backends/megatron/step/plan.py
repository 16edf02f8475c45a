"""Cutting a replica's samples into steps and micro-batches, ready to run."""

from __future__ import annotations

from collections.abc import Sequence

from relax.arguments.groups.batch import BatchSettings
from relax.backends.megatron.parallel import ParallelLayout
from relax.backends.megatron.step.batch import (
    MicroBatch,
    TrainSample,
    build_micro_batch,
    check_samples,
    split_micro_batches,
    split_steps,
)
from relax.errors import ArgumentError


def plan_steps(
    samples: Sequence[TrainSample],
    *,
    settings: BatchSettings,
    layout: ParallelLayout,
    max_tokens: int | None,
    length_multiple: int,
) -> list[list[MicroBatch]]:
    """The micro-batches of each optimizer step of a rollout.

    Log-prob passes use it too: with the same ``max_tokens`` a sample is computed in the
    same rectangle as in training.

    Args:
        samples: This replica's samples.
        settings: Batch sizes over all replicas.
        layout: How many replicas there are, and the device.
        max_tokens: Tokens of a dynamic micro-batch, padding included.
        length_multiple: Padded lengths are multiples of it.

    Returns:
        One list a step.

    Raises:
        ArgumentError: The global batch does not split over the replicas, or columns of
            a sample do not fit each other.
    """
    check_samples(samples)
    if settings.global_batch_size % layout.data_size:
        raise ArgumentError(
            f"--global-batch-size {settings.global_batch_size} cannot be split over "
            f"{layout.data_size} data-parallel replicas"
        )
    per_step = settings.global_batch_size // layout.data_size

    def built(rows: range) -> list[MicroBatch]:
        cuts = split_micro_batches(
            samples, rows, settings=settings, max_tokens=max_tokens
        )
        place = {"multiple": length_multiple, "device": layout.device}
        return [
            build_micro_batch(samples, cut, number=number, **place)
            for number, cut in enumerate(cuts)
        ]

    steps = split_steps(len(samples), samples_per_step=per_step)
    return [built(rows) for rows in steps]
