"""Sums of two two-digit numbers, and a student who gets most of them wrong.

The pairs are split three ways by *unordered* pair, so that a held-out ``38 + 47`` has
no twin ``47 + 38`` among the sums the model was trained on.

The student's answers are what the supervised model imitates. They come in two habits:

    a guess     It is about 90.                       a round number, rarely right
    working     40+30=70, 7+8=15, so it is 85.        each of three parts can go wrong

Because the slips are drawn afresh for every answer and do not depend on the sum, a
model that imitates them well still knows every right answer: it gives it with a
probability near a third. That leaves reinforcement learning something to find (show the
working, stop slipping), and what it finds carries over to sums it never saw.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LOWEST, HIGHEST = 10, 59
WORDINGS = ("What is {0} plus {1}?", "Add {0} and {1}.", "{0} + {1} = ?")

GUESS_RATE = 0.68
"""How often the student guesses."""

SLIP_RATES = {"tens": 0.07, "ones": 0.08, "total": 0.08}
"""How often each part of the working goes wrong."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One sum, in one of the wordings.

    Attributes:
        left: First number.
        right: Second number.
        wording: Index into ``WORDINGS``.
    """

    left: int
    right: int
    wording: int

    @property
    def prompt(self) -> str:
        """The question as the user asks it."""
        return WORDINGS[self.wording].format(self.left, self.right)

    @property
    def label(self) -> str:
        """The right answer in decimal digits."""
        return str(self.left + self.right)

    def row(self) -> dict[str, str]:
        """The row of a prompt file: ``input`` and ``label``."""
        return {"input": self.prompt, "label": self.label}


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Three sets of problems that share no unordered pair of numbers.

    Attributes:
        sft: For the supervised model.
        train: Prompts for reinforcement learning.
        heldout: Seen by neither.
    """

    sft: tuple[Problem, ...]
    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...]


def split(*, seed: int, train_pairs: int = 400, heldout_pairs: int = 128) -> Splits:
    """Deal all pairs out to the three sets.

    Args:
        seed: Decides the deal, the order of the numbers and the wordings.
        train_pairs: Unordered pairs for reinforcement learning.
        heldout_pairs: Unordered pairs kept back.

    Returns:
        The three sets. ``sft`` holds its pairs in both orders, the others in one.
    """
    rng = random.Random(seed)
    numbers = range(LOWEST, HIGHEST + 1)
    pairs = [(a, b) for a in numbers for b in numbers if a <= b]
    rng.shuffle(pairs)
    kept = pairs[:heldout_pairs]
    prompts = pairs[heldout_pairs : heldout_pairs + train_pairs]
    rest = pairs[heldout_pairs + train_pairs :]
    return Splits(
        sft=tuple(p for pair in rest for p in _both_orders(pair, rng=rng)),
        train=tuple(_one_order(pair, rng=rng) for pair in prompts),
        heldout=tuple(_one_order(pair, rng=rng) for pair in kept),
    )


def answer(problem: Problem, *, rng: random.Random) -> str:
    """What the student answers, right about one time in three."""
    if rng.random() < GUESS_RATE:
        total = problem.left + problem.right
        return f"It is about {total - total % 10 + rng.choice((0, 10))}."
    tens_left, ones_left = divmod(problem.left, 10)
    tens_right, ones_right = divmod(problem.right, 10)
    tens = 10 * max(1, tens_left + tens_right + _slip("tens", rng=rng))
    ones = max(0, ones_left + ones_right + _slip("ones", rng=rng))
    total = tens + ones + rng.choice((1, 10)) * _slip("total", rng=rng)
    return (
        f"{10 * tens_left}+{10 * tens_right}={tens}, "
        f"{ones_left}+{ones_right}={ones}, so it is {total}."
    )


def answers(
    problems: Sequence[Problem], *, count: int, seed: int
) -> Iterator[tuple[Problem, str]]:
    """Draw ``count`` problems with replacement, each with a fresh answer."""
    rng = random.Random(seed)
    for _ in range(count):
        problem = rng.choice(problems)
        yield problem, answer(problem, rng=rng)


def _one_order(pair: tuple[int, int], *, rng: random.Random) -> Problem:
    left, right = pair if rng.random() < 0.5 else pair[::-1]
    return Problem(left=left, right=right, wording=rng.randrange(len(WORDINGS)))


def _both_orders(pair: tuple[int, int], *, rng: random.Random) -> Iterator[Problem]:
    for left, right in sorted({pair, pair[::-1]}):
        yield Problem(left=left, right=right, wording=rng.randrange(len(WORDINGS)))


def _slip(part: str, *, rng: random.Random) -> int:
    """0, or ±1 as often as this part goes wrong."""
    return rng.choice((-1, 1)) if rng.random() < SLIP_RATES[part] else 0
