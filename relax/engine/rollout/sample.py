"""One prompt and one response: the unit that a rollout produces.

Field names, status values and alignment are upstream's, so that dumps of either side
can be read by the other: per-token lists have ``response_length`` entries, position j
belongs to ``tokens[T-R+j]``. What is absent is None, never a filler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from relax.errors import RecordError

Message = dict[str, Any]


class SampleStatus(StrEnum):
    """How far a sample came."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(kw_only=True, eq=False)
class Sample:
    """A prompt, its response and what is known of both. Mutable, as upstream's.

    Attributes:
        group_index: Running number of the prompt; its samples form a group.
        index: Running number of the sample; never starts again within a run.
        prompt: Text after the chat template (or the messages before it).
        tokens: Prompt and response ids, T of them.
        response: Decoded text of the response, stop token included.
        response_length: R, the number of response ids at the end of ``tokens``.
        label: The right answer, when the data have one.
        reward: What the reward function gave; None when there is none (yet).
        loss_mask: R times 0 or 1; None before it is known or for a failed sample.
        weight_versions: Version of the weights, one an engine call.
        rollout_log_probs: R values from the engine at the sampling temperature.
        status: How far it came.
        stop_reason: Why generation ended, e.g. ``eos``, ``length``, ``context``.
        failure: Why a failed sample failed, one sentence; '' otherwise.
        metadata: The data row's own metadata, plus ``stop_text``: the text at the end
            of ``response`` that ended it.
        remove_sample: Train with a mask of zeros.
        abort_count: How often generation was aborted.
        extra: Fields of a foreign dump that this class does not have.
    """

    group_index: int | None = None
    index: int | None = None
    prompt: str | list[Message] = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | NDArray[np.float32] | None = None
    status: SampleStatus = SampleStatus.PENDING
    stop_reason: str = ""
    failure: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    remove_sample: bool = False
    abort_count: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The response without the text that ended it, stripped of white space."""
        return self.response.removesuffix(self.metadata.get("stop_text", "")).strip()

    def fail(self, reason: str) -> None:
        """Mark as failed: no reward and no mask, so nothing can train on it."""
        self.status = SampleStatus.FAILED
        self.failure = reason
        self.reward = None
        self.loss_mask = None

    def scalar_reward(self, reward_key: str | None) -> float | None:
        """The reward as a number.

        Args:
            reward_key: Key of the number when rewards are dicts.

        Returns:
            The number, or None when there is no reward.

        Raises:
            RecordError: A dict without that key, or a dict and no key.
        """
        if not isinstance(self.reward, Mapping):
            return None if self.reward is None else float(self.reward)
        if reward_key is None or reward_key not in self.reward:
            raise RecordError(
                f"the reward of sample {self.index} is a dict with the keys "
                f"{sorted(self.reward)} and --reward-key is {reward_key!r}",
                hint="name one of them with --reward-key",
            )
        return float(self.reward[reward_key])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: enum as its value, arrays as lists, foreign fields inline."""
        row: dict[str, Any] = dict(self.extra)
        for item in fields(self):
            if item.name != "extra":
                row[item.name] = getattr(self, item.name)
        row["status"] = str(self.status.value)
        if isinstance(self.rollout_log_probs, np.ndarray):
            row["rollout_log_probs"] = self.rollout_log_probs.tolist()
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read what `to_dict`, or upstream's, wrote; unknown keys go to ``extra``.

        Raises:
            RecordError: ``status`` is missing or unknown.
        """
        known = {item.name for item in fields(cls)} - {"extra"}
        try:
            status = SampleStatus(row["status"])
        except (KeyError, ValueError) as error:
            allowed = ", ".join(SampleStatus)
            raise RecordError(
                f"a sample's status is {row.get('status')!r}",
                where=f"sample {row.get('index')}: status",
                hint=f"it must be one of {allowed}",
            ) from error
        values = {name: row[name] for name in known & row.keys()}
        extra = {name: row[name] for name in row.keys() - known}
        return cls(**{**values, "status": status, "extra": extra})


def sorted_groups(groups: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """Groups ordered by their first index, samples within each by theirs."""
    ordered = [sorted(group, key=_position) for group in groups if group]
    return sorted(ordered, key=lambda group: _position(group[0]))


def _position(sample: Sample) -> int:
    return -1 if sample.index is None else sample.index
