"""Samples to optimizer steps to micro-batches.

Letters: B rows of a micro-batch, S its padded length, R response tokens, N response
tokens of all rows one after the other.

Rows are padded on the right, so real tokens never attend to padding. Packed samples lie
one after the other in a single row, each a segment that attends to itself alone;
padding is a segment of its own. The log-prob passes and the training pass cut the
samples the same way, which is what makes their bits equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relax.arguments.groups.batch import BatchSettings
from relax.errors import ArgumentError, InternalError

PADDING_TOKEN = 0
"""Any id of the vocabulary does: what padded positions compute is never looked at."""


@dataclass(frozen=True, kw_only=True)
class TrainSample:
    """One sample as the trainer needs it.

    Attributes:
        sample_index: The sample's number in the rollout.
        tokens: Prompt and response, int64 [T].
        response_length: R; the response is ``tokens[T-R:]``.
        loss_mask: 1 where a response token is trained on, [R].
        rollout_log_probs: The engine's, float32 [R]; None when it gave none.
        reward: Post-processed reward.
        group_index: The group (prompt) it belongs to.
        log_probs: From the log-prob pass, float32 [R]; None before it.
        ref_log_probs: From the reference pass, float32 [R]; None without one.
        advantages: float32 [R]; None before they are computed.
        returns: float32 [R]; None before they are computed.
    """

    sample_index: int
    tokens: NDArray[np.int64]
    response_length: int
    loss_mask: NDArray[np.integer]
    rollout_log_probs: NDArray[np.float32] | None
    reward: float
    group_index: int
    log_probs: NDArray[np.float32] | None = None
    ref_log_probs: NDArray[np.float32] | None = None
    advantages: NDArray[np.float32] | None = None
    returns: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a sample was computed.

    Attributes:
        sample_index: The sample's number in the rollout.
        micro_batch: Number of the micro-batch within its optimizer step.
        rank: Global rank that computed it.
        place: Number within the micro-batch, from the top or the left.
        padded_length: Tokens of each row, padding included.
    """

    sample_index: int
    micro_batch: int
    rank: int
    place: int
    padded_length: int


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Samples that go through the model together.

    Attributes:
        number: Within the optimizer step.
        rows: Positions of its samples in the list that was cut, in row order.
        samples: Those samples; what is below or behind them is padding.
        tokens_BS: int64 [B, S].
        positions_BS: int64 [B, S].
        response_rows_N: For each response token the row that it is in, int64.
        response_sources_N: The position that predicts it (one before it), int64.
        targets_N: The token itself, int64.
        segments: Where each packed segment ends, the first with a 0 before it, int32;
            None for padded rows.
    """

    number: int
    rows: tuple[int, ...]
    samples: tuple[TrainSample, ...]
    tokens_BS: Tensor  # noqa: N815
    positions_BS: Tensor  # noqa: N815
    response_rows_N: Tensor  # noqa: N815
    response_sources_N: Tensor  # noqa: N815
    targets_N: Tensor  # noqa: N815
    segments: Tensor | None

    @property
    def padded_length(self) -> int:
        """S."""
        return self.tokens_BS.shape[1]

    @property
    def response_lengths(self) -> list[int]:
        """R of each row."""
        return [sample.response_length for sample in self.samples]

    def placements(self, rank: int) -> list[Placement]:
        """Where each of its samples is."""
        return [
            Placement(
                sample_index=sample.sample_index,
                micro_batch=self.number,
                rank=rank,
                place=place,
                padded_length=self.padded_length,
            )
            for place, sample in enumerate(self.samples)
        ]


def check_samples(samples: Sequence[TrainSample]) -> None:
    """Refuses samples whose columns do not fit each other.

    Raises:
        ArgumentError: A column has another length than the response, or the response
            has no token before it that could predict it.
    """
    for sample in samples:
        where = f"sample {sample.sample_index}"
        length, total = sample.response_length, len(sample.tokens)
        if not 0 <= length < total:
            raise ArgumentError(
                f"response_length {length} does not leave a prompt in {total} tokens",
                where=where,
            )
        for name in (
            "loss_mask",
            "rollout_log_probs",
            "log_probs",
            "ref_log_probs",
            "advantages",
            "returns",
        ):
            column = getattr(sample, name)
            if column is not None and len(column) != length:
                raise ArgumentError(
                    f"{name} has {len(column)} values for {length} response tokens",
                    where=where,
                )


def check_vocabulary(samples: Sequence[TrainSample], vocab_size: int) -> None:
    """Refuses tokens that the model has no row for.

    Raises:
        ArgumentError: Names sample, position and id.
    """
    for sample in samples:
        foreign = (sample.tokens < 0) | (sample.tokens >= vocab_size)
        if foreign.any():
            at = int(foreign.argmax())
            raise ArgumentError(
                f"token {int(sample.tokens[at])} at position {at} is not in the "
                f"model's vocabulary of {vocab_size}",
                where=f"sample {sample.sample_index}",
                hint="the samples were made with another tokenizer",
            )


def split_steps(num_samples: int, *, step_sizes: Sequence[int]) -> list[range]:
    """Cuts a replica's samples into optimizer steps, in order.

    Args:
        num_samples: Samples of this replica.
        step_sizes: How many each step takes.

    Returns:
        Positions of each step's samples.

    Raises:
        InternalError: The sizes do not add up to the samples.
    """
    if sum(step_sizes) != num_samples or min(step_sizes, default=-1) < 0:
        raise InternalError(
            f"steps of {list(step_sizes)} samples do not hold {num_samples}"
        )
    ends = list(accumulate(step_sizes))
    return [range(end - size, end) for end, size in zip(ends, step_sizes, strict=True)]


def equal_steps(num_samples: int, *, samples_per_step: int) -> list[int]:
    """Sizes of steps of like size; what is left over makes a smaller last one.

    Raises:
        InternalError: A number is not positive.
    """
    if num_samples < 1 or samples_per_step < 1:
        raise InternalError(f"cannot cut {num_samples} samples by {samples_per_step}")
    starts = range(0, num_samples, samples_per_step)
    return [min(samples_per_step, num_samples - start) for start in starts]


def split_micro_batches(
    samples: Sequence[TrainSample],
    rows: Sequence[int],
    *,
    settings: BatchSettings,
    max_tokens: int | None,
) -> list[tuple[int, ...]]:
    """Cuts one step's samples into micro-batches.

    Args:
        samples: All samples of this rank.
        rows: The step's positions in it.
        settings: Micro-batch size, or that it is dynamic.
        max_tokens: Tokens of a dynamic micro-batch, padding included.

    Returns:
        Positions of each micro-batch's samples, in their order there. A step without
        samples has one micro-batch without any: the other replicas wait for its
        gradients.

    Raises:
        ArgumentError: Dynamic without a number of tokens.
    """
    if not rows:
        return [()]
    if not settings.use_dynamic_batch_size:
        size = settings.micro_batch_size
        return [tuple(rows[at : at + size]) for at in range(0, len(rows), size)]
    if max_tokens is None:
        raise ArgumentError(
            "--use-dynamic-batch-size needs a number of tokens",
            hint="add --max-tokens-per-gpu",
        )
    packed = settings.qkv_format == "thd"
    return _filled(samples, rows, max_tokens=max_tokens, packed=packed)


def _filled(
    samples: Sequence[TrainSample],
    rows: Sequence[int],
    *,
    max_tokens: int,
    packed: bool,
) -> list[tuple[int, ...]]:
    """Fills micro-batches with samples of like length, the longest first.

    Neighbours in length share a micro-batch, so that little of it is padding. A sample
    that alone exceeds the limit gets a micro-batch of its own.
    """
    by_length = sorted(rows, key=lambda row: (-len(samples[row].tokens), row))
    batches: list[tuple[int, ...]] = []
    current: list[int] = []
    for row in by_length:
        grown = rectangle_of(samples, [*current, row], multiple=1, packed=packed)
        if current and grown.rows * grown.length > max_tokens:
            batches.append(tuple(current))
            current = []
        current.append(row)
    batches.append(tuple(current))
    return batches


class Rectangle(NamedTuple):
    """Rows and padded length of a micro-batch; packed: one row holds all samples."""

    rows: int
    length: int
    packed: bool


def rectangle_of(
    samples: Sequence[TrainSample], rows: Sequence[int], *, multiple: int, packed: bool
) -> Rectangle:
    """The smallest rectangle that holds some samples.

    Args:
        samples: All samples of this rank.
        rows: Positions of the micro-batch's samples; none gives one row of padding.
        multiple: The padded length is a multiple of this (sequence parallelism).
        packed: One row holds all samples.
    """
    lengths = [len(samples[row].tokens) for row in rows] or [1]
    longest = sum(lengths) if packed else max(lengths)
    return Rectangle(
        rows=1 if packed else len(lengths),
        length=-(-longest // multiple) * multiple,
        packed=packed,
    )


def build_micro_batch(
    samples: Sequence[TrainSample],
    rows: tuple[int, ...],
    *,
    number: int,
    rectangle: Rectangle,
    device: torch.device,
) -> MicroBatch:
    """Pads samples into one rectangle and finds the response tokens in it.

    Args:
        samples: All samples of this rank.
        rows: Positions of the micro-batch's samples.
        number: Its number within the step.
        rectangle: From `rectangle_of`, or a larger one.
        device: Where the tensors go.

    Returns:
        The micro-batch.
    """
    chosen = tuple(samples[row] for row in rows)
    tokens = np.full((rectangle.rows, rectangle.length), PADDING_TOKEN, dtype=np.int64)
    positions = np.tile(np.arange(rectangle.length), (rectangle.rows, 1))
    none = np.empty(0, dtype=np.int64)
    response_rows, sources, targets = [none], [none], [none]
    ends = [0]
    for place, sample in enumerate(chosen):
        total, length = len(sample.tokens), sample.response_length
        row, start = (0, ends[-1]) if rectangle.packed else (place, 0)
        tokens[row, start : start + total] = sample.tokens
        positions[row, start : start + total] = np.arange(total)
        ends.append(ends[-1] + total)
        end = start + total
        response_rows.append(np.full(length, row, dtype=np.int64))
        sources.append(np.arange(end - length - 1, end - 1, dtype=np.int64))
        targets.append(np.asarray(sample.tokens[total - length :], dtype=np.int64))
    return MicroBatch(
        number=number,
        rows=rows,
        samples=chosen,
        tokens_BS=torch.from_numpy(tokens).to(device),
        positions_BS=torch.from_numpy(positions).to(device),
        response_rows_N=_placed(response_rows, device),
        response_sources_N=_placed(sources, device),
        targets_N=_placed(targets, device),
        segments=_segments(ends, rectangle, device),
    )


def _placed(parts: list[NDArray[np.int64]], device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)


def _segments(
    ends: list[int], rectangle: Rectangle, device: torch.device
) -> Tensor | None:
    """Ends of the packed samples, and of the padding behind them."""
    if not rectangle.packed:
        return None
    if ends[-1] < rectangle.length:
        ends = [*ends, rectangle.length]
    return torch.tensor(ends, dtype=torch.int32, device=device)
