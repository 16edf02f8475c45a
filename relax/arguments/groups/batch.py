"""How many samples a rollout, a step and a micro-batch hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relax.arguments.flag import POSITIVE, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Batch sizes.

    After resolving, ``rollout_batch_size * n_samples_per_prompt`` equals
    ``global_batch_size * num_steps_per_rollout``, all in samples.
    """

    rollout_batch_size: int = field(
        metadata=flag(
            "Prompts (groups) of one rollout.",
            bounds=POSITIVE,
            derived="--global-batch-size over --n-samples-per-prompt",
        )
    )
    n_samples_per_prompt: int = field(
        default=1, metadata=flag("Samples of one group.", bounds=POSITIVE)
    )
    global_batch_size: int = field(
        metadata=flag(
            "Samples of one optimizer step.",
            bounds=POSITIVE,
            derived="the rollout's samples over --num-steps-per-rollout",
        )
    )
    num_steps_per_rollout: int = field(
        default=1,
        metadata=flag(
            "Optimizer steps of one rollout.",
            bounds=POSITIVE,
            derived="the rollout's samples over --global-batch-size",
        ),
    )
    micro_batch_size: int = field(
        default=1,
        metadata=flag(
            "Samples of one micro-batch, unless its size is dynamic.", bounds=POSITIVE
        ),
    )
    use_dynamic_batch_size: bool = field(
        default=False,
        metadata=flag("Fill micro-batches up to --max-tokens-per-gpu tokens."),
    )
    qkv_format: Literal["bshd", "thd"] = field(
        default="bshd",
        metadata=flag(
            "Samples of a micro-batch: padded side by side (bshd), or packed one after"
            " the other without padding (thd)."
        ),
    )
    max_tokens_per_gpu: int | None = field(
        default=None,
        metadata=flag("Tokens of a dynamic micro-batch on one GPU.", bounds=POSITIVE),
    )
    log_probs_max_tokens_per_gpu: int | None = field(
        default=None,
        metadata=flag(
            "The same for passes without gradients.",
            bounds=POSITIVE,
            derived="--max-tokens-per-gpu",
        ),
    )
    balance_data: bool = field(
        default=False,
        metadata=flag("Give each data-parallel rank about the same tokens."),
    )
    calculate_per_token_loss: bool = field(
        default=False,
        metadata=flag("Weigh each token the same, instead of each sample."),
    )
