"""Which data-parallel replica trains on which samples of a rollout.

The samples of an optimizer step are decided first, by their order alone, and are then
shared out: so a step holds the same samples on every layout, and so do its metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax.errors import InternalError


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one replica is given.

    Attributes:
        rows: Positions of its samples among all, step after step.
        step_sizes: How many of them each optimizer step takes; 0 is possible.
    """

    rows: tuple[int, ...]
    step_sizes: tuple[int, ...]


def share_out(
    lengths: Sequence[int], *, samples_per_step: int, replicas: int, balance: bool
) -> list[Share]:
    """Shares a rollout's samples out over the replicas.

    Every replica makes the same number of steps, and within a step the numbers of
    samples differ by at most one.

    Args:
        lengths: Tokens of each sample, prompt included.
        samples_per_step: ``--global-batch-size``; the last step takes what is left.
        replicas: Data-parallel replicas.
        balance: Give each replica about the same tokens (``--balance-data``), instead
            of samples that lie next to each other.

    Returns:
        One share a replica.

    Raises:
        InternalError: There is no sample, or a size is not positive.
    """
    if not lengths or samples_per_step < 1 or replicas < 1:
        raise InternalError(
            f"cannot share {len(lengths)} samples out over {replicas} replicas, "
            f"{samples_per_step} a step"
        )
    rows: list[list[int]] = [[] for _ in range(replicas)]
    sizes: list[list[int]] = [[] for _ in range(replicas)]
    for start in range(0, len(lengths), samples_per_step):
        step = range(start, min(start + samples_per_step, len(lengths)))
        room = [
            len(step) // replicas + (r < len(step) % replicas) for r in range(replicas)
        ]
        parts = _balanced(lengths, step, room) if balance else _blocks(step, room)
        for replica, part in enumerate(parts):
            rows[replica] += part
            sizes[replica].append(len(part))
    return [
        Share(rows=tuple(own), step_sizes=tuple(counts))
        for own, counts in zip(rows, sizes, strict=True)
    ]


def _blocks(step: range, room: Sequence[int]) -> list[list[int]]:
    """Neighbours together."""
    blocks, start = [], 0
    for size in room:
        blocks.append(list(step[start : start + size]))
        start += size
    return blocks


def _balanced(
    lengths: Sequence[int], step: range, room: Sequence[int]
) -> list[list[int]]:
    """The longest first, each to the replica with the fewest tokens that has room."""
    parts: list[list[int]] = [[] for _ in room]
    tokens = [0] * len(room)
    for row in sorted(step, key=lambda row: (-lengths[row], row)):
        open_to = [r for r, size in enumerate(room) if len(parts[r]) < size]
        lightest = min(open_to, key=lambda r: (tokens[r], r))
        parts[lightest].append(row)
        tokens[lightest] += lengths[row]
    return [sorted(part) for part in parts]
