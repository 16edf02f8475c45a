"""Which row of the rollout dump a trained sample is."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from relax.dump.readers.notes import Notes
from relax.dump.readers.train import TrainSample

Key = tuple[int, bytes]
"""``sample_index`` and digest of the tokens of a row."""


def match_rows(
    keys: Sequence[Key], samples: Iterable[TrainSample], *, notes: Notes
) -> list[TrainSample | None]:
    """For each row the sample that was trained; None where no file has it.

    Samples with a number of the whole run are matched by number and tokens, the others
    by tokens alone. Rows that are the same in both are taken in order.

    Args:
        keys: Of the rows, in order.
        samples: Of all train dumps.
        notes: Takes what fits nowhere.
    """
    exact: dict[Key, deque[int]] = defaultdict(deque)
    by_tokens: dict[bytes, deque[int]] = defaultdict(deque)
    for number, key in enumerate(keys):
        exact[key].append(number)
        by_tokens[key[1]].append(number)
    trained: list[TrainSample | None] = [None] * len(keys)
    for sample in samples:
        free = by_tokens[sample.digest]
        if sample.index is not None:
            free = exact.get((sample.index, sample.digest), free)
        while free and trained[free[0]] is not None:
            free.popleft()
        if free:
            trained[free.popleft()] = sample
        else:
            notes.add(
                "was trained on and is not in the rollout dump; left out",
                sample=sample.position,
            )
    missing = sum(sample is None for sample in trained)
    if missing:
        notes.add(f"{missing} of {len(keys)} samples are in no train dump that is here")
    return trained
