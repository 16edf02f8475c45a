"""A character-level tokenizer in the Hugging Face format."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
USER, ASSISTANT = "<user>", "<assistant>"
SPECIAL = (PAD, UNKNOWN, BOS, EOS, USER, ASSISTANT)

MAX_LENGTH = 256
"""Longest prompt and response together, in tokens."""

# 49 characters and 6 special tokens make 55: odd on purpose, so that a trainer that
# shards the vocabulary has padding to get right.
CHARACTERS = " 0123456789+-=?.,:!'AWIabcdefghijklmnopqrstuvwxyz"

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "<assistant>{{ message.content }}{{ eos_token }}"
    "{%- else -%}"
    "<user>{{ message.content }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<assistant>{%- endif -%}"
)


def build() -> PreTrainedTokenizerFast:
    """One token a character, six special tokens and a chat template.

    A byte-pair model without merges splits text into its characters, so nothing has to
    be trained, and ``Fuse`` joins them again without inventing spaces.
    """
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *CHARACTERS))}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    backend.decoder = Fuse()
    backend.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def save(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer so that transformers 4 and 5 both load it.

    Version 5 writes names that version 4 (and servers that pin it) lacks; the older
    names mean the same to both.
    """
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    settings["chat_template"] = CHAT_TEMPLATE
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
