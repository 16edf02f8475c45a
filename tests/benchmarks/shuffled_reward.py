"""The tiny example's reward, shuffled within each group: nothing can be learned."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from relax.engine.rewards.registry import built_in_reward
from relax.engine.rollout.sample import Sample


async def reward(args: Any, samples: Sequence[Sample], **_: Any) -> list[float]:
    """One reward a sample of a group; a ``--group-rm`` reward."""
    score = built_in_reward("last_number")
    rewards = [float(score(sample)) for sample in samples]
    random.Random(samples[0].group_index).shuffle(rewards)
    return rewards
