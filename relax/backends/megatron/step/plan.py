"""Cutting a replica's samples into steps and micro-batches, ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

from relax.arguments.groups.batch import BatchSettings
from relax.backends.megatron.parallel import ParallelLayout
from relax.backends.megatron.step.batch import (
    MicroBatch,
    Rectangle,
    TrainSample,
    build_micro_batch,
    check_samples,
    equal_steps,
    rectangle_of,
    split_micro_batches,
    split_steps,
)
from relax.errors import ArgumentError

Cut = tuple[tuple[int, ...], Rectangle]
"""Positions of a micro-batch's samples, and the rectangle that they are padded to."""


class Padding(NamedTuple):
    """What a layout asks of the rectangles.

    Attributes:
        multiple: Padded lengths are multiples of it (sequence parallelism).
        alike: All micro-batches of a rollout have the same (stages that do not tell
            each other the length).
    """

    multiple: int
    alike: bool


def plan_steps(
    samples: Sequence[TrainSample],
    *,
    step_sizes: Sequence[int] | None,
    settings: BatchSettings,
    layout: ParallelLayout,
    max_tokens: int | None,
    padding: Padding,
) -> list[list[MicroBatch]]:
    """The micro-batches of each optimizer step of a rollout.

    Log-prob passes use it too: with the same ``max_tokens`` a sample is computed in the
    same rectangle as in training. A collective when experts are spread over ranks.

    Args:
        samples: This replica's samples.
        step_sizes: How many of them each step takes; None: as many as the replica's
            part of the global batch.
        settings: Batch sizes over all replicas.
        layout: How many replicas there are, and the device.
        max_tokens: Tokens of a dynamic micro-batch, padding included.
        padding: What the layout asks of the rectangles.

    Returns:
        One list a step.

    Raises:
        ArgumentError: The global batch does not split over the replicas, or columns of
            a sample do not fit each other.
    """
    check_samples(samples)
    if step_sizes is None:
        per_step = _samples_per_step(settings, layout)
        step_sizes = equal_steps(len(samples), samples_per_step=per_step)
    packed = settings.qkv_format == "thd"
    steps: list[list[Cut]] = []
    for rows in split_steps(len(samples), step_sizes=step_sizes):
        parts = split_micro_batches(
            samples, rows, settings=settings, max_tokens=max_tokens
        )
        sizes = [
            rectangle_of(samples, p, multiple=padding.multiple, packed=packed)
            for p in parts
        ]
        steps.append(list(zip(parts, sizes, strict=True)))
    if layout.expert_size > 1:
        steps = _in_lockstep(steps, layout)
    if padding.alike:
        steps = _alike(steps)
    return [_built(samples, cuts, layout) for cuts in steps]


def _built(
    samples: Sequence[TrainSample], cuts: Sequence[Cut], layout: ParallelLayout
) -> list[MicroBatch]:
    return [
        build_micro_batch(
            samples, rows, number=number, rectangle=rectangle, device=layout.device
        )
        for number, (rows, rectangle) in enumerate(cuts)
    ]


def _samples_per_step(settings: BatchSettings, layout: ParallelLayout) -> int:
    if settings.global_batch_size % layout.data_size:
        raise ArgumentError(
            f"--global-batch-size {settings.global_batch_size} cannot be split over "
            f"{layout.data_size} data-parallel replicas"
        )
    return settings.global_batch_size // layout.data_size


def _in_lockstep(steps: list[list[Cut]], layout: ParallelLayout) -> list[list[Cut]]:
    """The same number of equally large micro-batches on all ranks that share experts.

    Tokens of all of them meet in every expert layer, also those of replicas that have
    fewer micro-batches: there they are padding.
    """
    mine = [[rectangle for _, rectangle in cuts] for cuts in steps]
    everyone: list[list[list[Rectangle]]] = [[] for _ in range(layout.expert_size)]
    dist.all_gather_object(everyone, mine, group=layout.expert_group)
    together = []
    for cuts, *theirs in zip(steps, *everyone, strict=True):
        padded = []
        for number in range(max(len(part) for part in theirs)):
            there = [part[number] for part in theirs if number < len(part)]
            rows = cuts[number][0] if number < len(cuts) else ()
            padded.append((rows, _holding(there)))
        together.append(padded)
    return together


def _alike(steps: list[list[Cut]]) -> list[list[Cut]]:
    """All micro-batches as large as the largest."""
    sizes = [rectangle for cuts in steps for _, rectangle in cuts]
    largest = _holding(sizes)
    return [[(rows, largest) for rows, _ in cuts] for cuts in steps]


def _holding(sizes: Sequence[Rectangle]) -> Rectangle:
    return Rectangle(
        rows=max(r.rows for r in sizes),
        length=max(r.length for r in sizes),
        packed=sizes[0].packed,
    )
