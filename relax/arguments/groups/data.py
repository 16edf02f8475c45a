"""Prompts and how long to train on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relax.arguments.flag import NON_NEGATIVE, POSITIVE, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The prompt data set and the data cursor."""

    prompt_data: Path | None = field(
        default=None,
        metadata=flag("Prompts, one JSON object a line.", kind=ValueKind.PATH),
    )
    input_key: str = field(
        default="input", metadata=flag("Key of the prompt in each object.")
    )
    label_key: str | None = field(
        default=None, metadata=flag("Key of the right answer, if there is one.")
    )
    metadata_key: str = field(
        default="metadata", metadata=flag("Key of what rewards may need besides.")
    )
    tool_key: str = field(
        default="tools", metadata=flag("Key of the tools that a prompt offers.")
    )
    apply_chat_template: bool = field(
        default=False,
        metadata=flag("Put each prompt through the tokenizer's chat template."),
    )
    rollout_shuffle: bool = field(
        default=False, metadata=flag("Shuffle the prompts anew each epoch.")
    )
    rollout_seed: int = field(
        default=42, metadata=flag("Seed of shuffling and sampling.")
    )
    num_rollout: int | None = field(
        default=None,
        metadata=flag("Rollouts to run; this or --num-epoch.", bounds=POSITIVE),
    )
    num_epoch: int | None = field(
        default=None,
        metadata=flag("Times to go through the prompts.", bounds=POSITIVE),
    )
    start_rollout_id: int | None = field(
        default=None,
        metadata=flag(
            "Number of the first rollout; without it, where --load left off.",
            bounds=NON_NEGATIVE,
        ),
    )
