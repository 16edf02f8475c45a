"""Generation: the engine and how it samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from relax.arguments.flag import ABOVE_ZERO, FRACTION, POSITIVE, Bounds, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """The rollout engine.

    Attributes:
        sglang: What was set under SGLang's own names (``--sglang-mem-fraction-static``
            is ``{"mem_fraction_static": ...}``), as JSON values.
    """

    rollout_backend: Literal["embedded", "sglang"] = field(
        default="embedded",
        metadata=flag(
            "Engine that generates.",
            ours=True,
            derived="sglang with GPUs, embedded on CPU",
        ),
    )
    rollout_function_path: str = field(
        default="relax.engine.rollout.sglang_rollout.generate_rollout",
        metadata=flag("Function that produces a rollout."),
    )
    eval_function_path: str | None = field(
        default=None,
        metadata=flag(
            "Function that produces an evaluation.", derived="--rollout-function-path"
        ),
    )
    custom_generate_function_path: str | None = field(
        default=None, metadata=flag("Function that generates one sample.")
    )
    rollout_temperature: float = field(
        default=1.0, metadata=flag("Sampling temperature.", bounds=ABOVE_ZERO)
    )
    rollout_top_p: float = field(
        default=1.0, metadata=flag("Nucleus sampling mass.", bounds=FRACTION)
    )
    rollout_top_k: int = field(
        default=-1,
        metadata=flag("Most likely tokens to sample from; -1: all.", bounds=Bounds(-1)),
    )
    rollout_max_response_len: int | None = field(
        default=None,
        metadata=flag(
            "Most tokens of a response.",
            bounds=POSITIVE,
            derived="--rollout-max-context-len",
        ),
    )
    rollout_max_prompt_len: int | None = field(
        default=None,
        metadata=flag("Most tokens of a prompt; longer are left out.", bounds=POSITIVE),
    )
    rollout_max_context_len: int | None = field(
        default=None,
        metadata=flag("Most tokens of prompt and response.", bounds=POSITIVE),
    )
    rollout_stop: tuple[str, ...] = field(
        default=(), metadata=flag("Texts that end a response.")
    )
    rollout_stop_token_ids: tuple[int, ...] = field(
        default=(), metadata=flag("Token ids that end a response.")
    )
    rollout_skip_special_tokens: bool = field(
        default=False, metadata=flag("Leave special tokens out of response texts.")
    )
    over_sampling_batch_size: int | None = field(
        default=None,
        metadata=flag(
            "Prompts started together, so that slow groups may be left behind.",
            bounds=POSITIVE,
            derived="--rollout-batch-size",
        ),
    )
    sglang_server_concurrency: int = field(
        default=512,
        metadata=flag("Requests in flight at one SGLang server.", bounds=POSITIVE),
    )
    sglang_python: Path | None = field(
        default=None,
        metadata=flag(
            "Interpreter that runs SGLang, when it is not this one.",
            ours=True,
            kind=ValueKind.PATH,
        ),
    )
    embedded_batch_size: int = field(
        default=64,
        metadata=flag(
            "Samples that the embedded engine generates together.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    sglang: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=flag("SGLang's ServerArgs.", kind=ValueKind.PASSTHROUGH),
    )
