"""What each ``--advantage-estimator`` is made of, as data.

    estimator                     baseline                      surrogate
    grpo                          group mean, over its std      clipped, by token
    gspo                          group mean, over its std      clipped, by sequence
    cispo                         group mean, over its std      truncated weight
    rloo                          mean of the other samples     clipped, by token
    reinforce_plus_plus           none; whitened returns        clipped, by token
    reinforce_plus_plus_baseline  group mean; whitened          clipped, by token

Names and pairings are upstream's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relax.errors import ArgumentError


class Baseline(Enum):
    """What is subtracted from a reward before it becomes an advantage."""

    NONE = "none"
    GROUP_MEAN = "group mean"
    GROUP_MEAN_STD = "group mean, over its std"
    LEAVE_ONE_OUT = "mean of the other samples"


class Surrogate(Enum):
    """How advantages and log-probs become a loss."""

    CLIPPED = "clipped, by token"
    SEQUENCE_CLIPPED = "clipped, by sequence"
    TRUNCATED_WEIGHT = "truncated weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """One ``--advantage-estimator``.

    Attributes:
        baseline: Of rewards, within groups.
        surrogate: The loss.
        token_rewards: Each token has its own return: KL and discount enter it. Else
            every token of a sample has the sample's reward.
    """

    baseline: Baseline = Baseline.GROUP_MEAN_STD
    surrogate: Surrogate = Surrogate.CLIPPED
    token_rewards: bool = False


ESTIMATORS = {
    "grpo": Estimator(),
    "gspo": Estimator(surrogate=Surrogate.SEQUENCE_CLIPPED),
    "cispo": Estimator(surrogate=Surrogate.TRUNCATED_WEIGHT),
    "rloo": Estimator(baseline=Baseline.LEAVE_ONE_OUT),
    "reinforce_plus_plus": Estimator(baseline=Baseline.NONE, token_rewards=True),
    "reinforce_plus_plus_baseline": Estimator(baseline=Baseline.GROUP_MEAN),
}


def estimator_of(name: str) -> Estimator:
    """The estimator of a name.

    Raises:
        ArgumentError: There is none.
    """
    if name not in ESTIMATORS:
        raise ArgumentError(
            f"--advantage-estimator {name!r} is not known",
            hint=f"use one of {', '.join(ESTIMATORS)}",
        )
    return ESTIMATORS[name]
