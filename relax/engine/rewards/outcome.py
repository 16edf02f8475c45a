"""What scoring one sample gave: a reward, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Reward = float | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ScoreOutcome:
    """The outcome of one sample.

    Attributes:
        reward: A finite number, or a dict that holds one under ``--reward-key``; None
            when scoring failed, which is not the same as a reward of 0.
        failure: Why there is no reward; '' when there is one.
    """

    reward: Reward | None
    failure: str = ""


def outcome_of(returned: object, *, reward_key: str | None) -> ScoreOutcome:
    """Check what a reward function returned.

    Args:
        returned: A number (bool and numpy scalars are), or a dict with ``reward_key``.
        reward_key: ``--reward-key``.

    Returns:
        The reward, or a failure for None, NaN, infinities and anything else.
    """
    if isinstance(returned, Mapping):
        if reward_key is None or reward_key not in returned:
            return ScoreOutcome(
                reward=None,
                failure=f"the reward is a dict with the keys {sorted(returned)} and "
                f"--reward-key is {reward_key!r}",
            )
        failure = _failure(returned[reward_key])
        return ScoreOutcome(reward=None if failure else dict(returned), failure=failure)
    failure = _failure(returned)
    number = None if failure else float(returned)  # type: ignore[arg-type]
    return ScoreOutcome(reward=number, failure=failure)


def _failure(value: Any) -> str:
    if value is None:
        return "the reward is None"
    if isinstance(value, (str, bytes)):
        return f"the reward is text: {value!r:.60}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return f"the reward is a {type(value).__name__}, not a number"
    return "" if math.isfinite(number) else f"the reward is {number}"
