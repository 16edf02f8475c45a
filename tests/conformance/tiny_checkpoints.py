"""Random Llama and Qwen3 checkpoints of a few thousand parameters, with a tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ("<pad>", "<bos>", "<eos>")
CHARACTERS = " 0123456789+-=?.,:abcdefghijklmnopqrstuvwxyz"
CONTEXT = 96
EOS_ID = 2

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": EOS_ID,
    "pad_token_id": 0,
    # Wide enough that the next token really depends on the prompt.
    "initializer_range": 0.3,
}


def character_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *CHARACTERS))}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    backend.decoder = Fuse()
    backend.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def save_checkpoint(folder: Path, *, family: str, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    tokenizer = character_tokenizer()
    vocab_size = len(tokenizer)
    if family == "llama":
        # Untied and odd: the output layer is a tensor of its own.
        config = LlamaConfig(**SHAPE, vocab_size=vocab_size, tie_word_embeddings=False)
        model = LlamaForCausalLM(config)
    else:
        config = Qwen3Config(
            **SHAPE, vocab_size=vocab_size, head_dim=8, tie_word_embeddings=True
        )
        model = Qwen3ForCausalLM(config)
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
