"""The rewards that ``--rm-type`` names."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Mapping

from relax.engine.rewards.exact_match import exact_match
from relax.engine.rewards.last_number import last_number
from relax.engine.rollout.sample import Sample
from relax.errors import ArgumentError

BuiltInReward = Callable[[Sample], float]


def random_reward(sample: Sample) -> float:
    """0.0 or 1.0 by the sample's index alone: the same in a repeated run."""
    return float(random.Random(f"reward {sample.index}").randrange(2))  # noqa: S311


BUILT_IN: Mapping[str, BuiltInReward] = {
    "exact_match": exact_match,
    "last_number": last_number,
    "random": random_reward,
}


def built_in_reward(rm_type: str) -> BuiltInReward:
    """Look up a reward.

    Raises:
        ArgumentError: There is none of that name; names the nearest.
    """
    if rm_type not in BUILT_IN:
        near = difflib.get_close_matches(rm_type, BUILT_IN, n=1)
        raise ArgumentError(
            f"no built-in reward is called {rm_type!r}",
            where="--rm-type",
            hint=f"did you mean {near[0]}?" if near else f"use {', '.join(BUILT_IN)}",
        )
    return BUILT_IN[rm_type]
