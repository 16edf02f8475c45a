"""Load what the embedded engine generates with."""
# The capitals at the end of a tensor's name are its shape.
# ruff: noqa: N803

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache

from relax.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model on the CPU in float32 and what belongs to it.

    Attributes:
        module: A causal language model of transformers, in eval mode.
        tokenizer: Of the same checkpoint; only stop texts need it here.
        eos_ids: Tokens that end every response.
        context_length: Most tokens, prompt and response together.
        cache_argument: What this version of transformers calls the cache.
    """

    module: Any
    tokenizer: Any
    eos_ids: frozenset[int]
    context_length: int
    cache_argument: str

    def next_logits(
        self, ids_BN: Tensor, *, mask: Tensor, positions: Tensor, cache: Cache
    ) -> Tensor:
        """Run N new tokens of each row through the model.

        Args:
            ids_BN: int64 [B, N].
            mask: int64 [B, S], 0 where a row is padded; S counts what is cached too.
            positions: int64 [B, N], counted without padding.
            cache: Keys and values of the S - N columns before; grows by N.

        Returns:
            float32 [B, V], the logits after the last column.
        """
        output = self.module(
            input_ids=ids_BN,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self.cache_argument: cache},
        )
        logits: Tensor = output.logits[:, -1]
        return logits


def load_model(path: Path) -> LoadedModel:
    """Load a Hugging Face checkpoint.

    Raises:
        EngineError: transformers cannot load it; says what it said.
    """
    try:
        module = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="sdpa"
        )
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EngineError(
            f"transformers cannot load this checkpoint: {error}",
            where=str(path),
            hint="--hf-checkpoint must be a folder with config, weights and tokenizer",
        ) from error
    module.eval().requires_grad_(requires_grad=False)
    return LoadedModel(
        module=module,
        tokenizer=tokenizer,
        eos_ids=_eos_ids(module, tokenizer=tokenizer),
        context_length=module.config.max_position_embeddings,
        cache_argument=_cache_argument(module),
    )


def _eos_ids(module: Any, *, tokenizer: Any) -> frozenset[int]:
    """The end tokens of the generation settings and the tokenizer's own."""
    ids: set[int] = set()
    for stated in (module.generation_config.eos_token_id, tokenizer.eos_token_id):
        if isinstance(stated, int):
            ids.add(stated)
        elif stated is not None:
            ids.update(stated)
    return frozenset(ids)


def _cache_argument(module: Any) -> str:
    """``cache`` from transformers 5.2x on, ``past_key_values`` before."""
    named = inspect.signature(module.forward).parameters
    return "cache" if "cache" in named else "past_key_values"
