"""Context parallelism: which response positions a rank's piece of a column holds.

A sequence of T tokens, padded, is cut into 2·c chunks for c ranks; rank r works on the
chunks r and 2c-1-r, so that causal attention is shared evenly. The logits at position i
score token i+1; of them a rank keeps those that score response tokens.

Source of the layout: Megatron-core's zig-zag split, as slime, miles and Relax use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relax.dump.readers.values import Floats

Span = tuple[int, int]


def spans(
    *, total: int, response: int, cp_rank: int, cp_size: int, padded: int | None = None
) -> tuple[Span, Span]:
    """Response positions of a rank's two chunks, each as [from, to).

    Args:
        total: T, tokens of the sequence.
        response: R, tokens of the response.
        cp_rank: The rank's place in its context-parallel group.
        cp_size: c, size of that group.
        padded: Tokens that the chunks were cut from; None: T, rounded up to a multiple
            of 2c.
    """
    prompt = total - response
    chunk = -(-(total if padded is None else padded) // (2 * cp_size))

    def span(number: int) -> Span:
        first = max(number * chunk, prompt - 1) + 1 - prompt
        end = min((number + 1) * chunk, total - 1) + 1 - prompt
        return (first, end) if first < end else (0, 0)

    return span(cp_rank), span(2 * cp_size - 1 - cp_rank)


def piece_length(places: tuple[Span, Span]) -> int:
    """Entries of the piece that has these spans."""
    return sum(end - first for first, end in places)


def put_together(
    pieces: Mapping[int, Floats],
    places: Sequence[tuple[Span, Span]],
    *,
    response: int,
) -> Floats | None:
    """A whole column from the pieces of its ranks.

    Args:
        pieces: By cp_rank.
        places: Each rank's `spans`.
        response: R.

    Returns:
        float32 [R]; None when a piece that holds something is not here.
    """
    whole = np.empty(response, np.float32)
    found = 0
    for cp_rank, both in enumerate(places):
        if not piece_length(both):
            continue
        piece = pieces.get(cp_rank)
        if piece is None:
            return None
        taken = 0
        for first, end in both:
            whole[first:end] = piece[taken : taken + end - first]
            taken += end - first
        found += taken
    return whole if found == response else None
