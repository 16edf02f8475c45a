"""One reward worker: scores samples in a process of its own."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from relax.engine.rewards.custom import call_custom_reward, load_custom_reward
from relax.engine.rewards.outcome import ScoreOutcome, outcome_of
from relax.engine.rewards.registry import built_in_reward
from relax.engine.rollout.sample import Sample
from relax.errors import ArgumentError


class RewardChoice(Protocol):
    """What a worker needs of `relax.arguments.groups.RewardSettings`."""

    @property
    def rm_type(self) -> str | None:
        """``--rm-type``."""

    @property
    def reward_key(self) -> str | None:
        """``--reward-key``."""

    @property
    def group_rm(self) -> bool:
        """``--group-rm``."""

    @property
    def custom_rm_path(self) -> str | None:
        """``--custom-rm-path``."""


class RewardWorker:
    """Scores samples with a built-in or a custom reward.

    Args:
        settings: Which reward.
        arguments: Handed to a custom reward as ``args``, untouched.

    Raises:
        ArgumentError: No reward is named, or the one named cannot be used.
    """

    def __init__(self, settings: RewardChoice, *, arguments: Any = None) -> None:
        self._settings = settings
        self._arguments = arguments
        self._custom = None
        if settings.custom_rm_path is not None:
            self._custom = load_custom_reward(
                settings.custom_rm_path, group=settings.group_rm
            )
        elif settings.rm_type is None:
            raise ArgumentError(
                "no reward is named",
                where="--rm-type",
                hint="give --rm-type or --custom-rm-path",
            )
        else:
            self._built_in = built_in_reward(settings.rm_type)

    async def score(self, samples: list[dict[str, Any]]) -> list[ScoreOutcome]:
        """Score samples, given as `Sample.to_dict` makes them.

        Returns:
            One outcome a sample, in order. A reward that raises is that sample's
            failure (with ``--group-rm`` the whole group's), never an exception here.
        """
        loaded = [Sample.from_dict(sample) for sample in samples]
        if self._settings.group_rm and self._custom is not None:
            return await self._score_group(loaded)
        return list(await asyncio.gather(*map(self._score_one, loaded)))

    async def _score_one(self, sample: Sample) -> ScoreOutcome:
        try:
            returned = await self._call(sample)
        except Exception as error:  # noqa: BLE001 - becomes the sample's failure
            return ScoreOutcome(reward=None, failure=_raised(error))
        return self._outcome(returned)

    async def _score_group(self, samples: Sequence[Sample]) -> list[ScoreOutcome]:
        try:
            returned = await self._call(samples)
        except Exception as error:  # noqa: BLE001 - becomes the samples' failure
            return [ScoreOutcome(reward=None, failure=_raised(error)) for _ in samples]
        if isinstance(returned, (str, Mapping)) or not isinstance(returned, Sequence):
            failure = f"the group's rewards are a {type(returned).__name__}, not a list"
        elif len(returned) != len(samples):
            failure = f"{len(returned)} rewards came back for {len(samples)} samples"
        else:
            return [self._outcome(each) for each in returned]
        return [ScoreOutcome(reward=None, failure=failure) for _ in samples]

    async def _call(self, samples: Any) -> Any:
        if self._custom is None:
            return self._built_in(samples)
        return await call_custom_reward(self._custom, self._arguments, samples)

    def _outcome(self, returned: object) -> ScoreOutcome:
        return outcome_of(returned, reward_key=self._settings.reward_key)


def _raised(error: Exception) -> str:
    """The exception in one line, with the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"the reward raised {type(error).__name__}: {error}{place}"
