"""Where weights come from and go to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relax.arguments.flag import POSITIVE, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Checkpoints read and written."""

    hf_checkpoint: Path = field(
        metadata=flag(
            "Hugging Face folder: model shape, tokenizer and first weights (required).",
            kind=ValueKind.PATH,
        )
    )
    ref_load: Path | None = field(
        default=None,
        metadata=flag(
            "Checkpoint of the reference model; needed by every KL term.",
            kind=ValueKind.PATH,
        ),
    )
    load: Path | None = field(
        default=None,
        metadata=flag("Checkpoint to go on from.", kind=ValueKind.PATH),
    )
    save: Path | None = field(
        default=None,
        metadata=flag("Folder that checkpoints are written to.", kind=ValueKind.PATH),
    )
    save_interval: int | None = field(
        default=None,
        metadata=flag("Rollouts between two checkpoints.", bounds=POSITIVE),
    )
    save_hf: str | None = field(
        default=None,
        metadata=flag(
            "Also save in the Hugging Face format: a folder with {rollout_id} in its"
            " name, at every --save-interval and at the end.",
            kind=ValueKind.TEMPLATE,
        ),
    )
    megatron_to_hf_mode: Literal["raw", "bridge"] = field(
        default="raw",
        metadata=flag("Weight conversion: own tables, or Megatron-Bridge."),
    )
