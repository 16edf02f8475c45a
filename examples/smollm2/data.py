"""Sums of two one-digit numbers, as chat messages.

    python examples/smollm2/data.py

writes ``train.jsonl`` and ``heldout.jsonl`` beside this file. The pairs are split as
*unordered* pairs, so that a held-out ``3 + 8`` has no twin ``8 + 3`` in training.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DIGITS = range(10)
WORDINGS = ("What is {0} plus {1}?", "What is {0} + {1}?")
"""Wordings that the model gets right some of the time: few groups are all wrong."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One sum, in one of the wordings.

    Attributes:
        left: First number, 0 to 9.
        right: Second number, 0 to 9.
        wording: Index into ``WORDINGS``.
    """

    left: int
    right: int
    wording: int

    def row(self) -> dict[str, Any]:
        """The row of a prompt file: ``messages`` and ``label``."""
        question = WORDINGS[self.wording].format(self.left, self.right)
        return {
            "messages": [{"role": "user", "content": question}],
            "label": str(self.left + self.right),
        }


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Two sets of problems that share no unordered pair of numbers."""

    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...]


def split(*, seed: int, heldout_pairs: int = 11) -> Splits:
    """Deal the 55 unordered pairs out to the two sets.

    Args:
        seed: Decides the deal and the order of the rows.
        heldout_pairs: Unordered pairs kept back.

    Returns:
        The two sets. ``train`` has its pairs in both orders and all wordings;
        ``heldout`` in both orders and one wording.
    """
    rng = random.Random(seed)
    pairs = [(a, b) for a in DIGITS for b in DIGITS if a <= b]
    rng.shuffle(pairs)
    kept, prompts = pairs[:heldout_pairs], pairs[heldout_pairs:]
    train = [
        Problem(left=left, right=right, wording=wording)
        for pair in prompts
        for left, right in _both_orders(pair)
        for wording in range(len(WORDINGS))
    ]
    heldout = [
        Problem(left=left, right=right, wording=rng.randrange(len(WORDINGS)))
        for pair in kept
        for left, right in _both_orders(pair)
    ]
    rng.shuffle(train)
    return Splits(train=tuple(train), heldout=tuple(heldout))


def write_rows(problems: Sequence[Problem], *, path: Path) -> None:
    """Write a prompt file: one JSON object a line."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(problem.row()) + "\n" for problem in problems)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=HERE)
    options = parser.parse_args(argv)
    splits = split(seed=options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, problems in (("train", splits.train), ("heldout", splits.heldout)):
        path = options.folder / f"{name}.jsonl"
        write_rows(problems, path=path)
        print(f"{path}: {len(problems)} prompts")


def _both_orders(pair: tuple[int, int]) -> list[tuple[int, int]]:
    return sorted({pair, pair[::-1]})


if __name__ == "__main__":
    main()
