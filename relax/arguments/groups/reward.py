"""Rewards."""

from __future__ import annotations

from dataclasses import dataclass, field

from relax.arguments.flag import POSITIVE, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    """How a response is judged."""

    rm_type: str | None = field(
        default=None,
        metadata=flag("Built-in reward: exact_match, last_number, random."),
    )
    reward_key: str | None = field(
        default=None, metadata=flag("Entry to train on, when a reward is a dict.")
    )
    group_rm: bool = field(
        default=False, metadata=flag("Judge the samples of a group together.")
    )
    custom_rm_path: str | None = field(
        default=None, metadata=flag("Reward function of your own: package.module.name.")
    )
    reward_max_concurrency: int = field(
        default=64, metadata=flag("Rewards computed at once.", bounds=POSITIVE)
    )
    reward_num_workers: int = field(
        default=16,
        metadata=flag(
            "Reward processes.",
            bounds=POSITIVE,
            derived="16 with GPUs; on CPU 1",
        ),
    )
