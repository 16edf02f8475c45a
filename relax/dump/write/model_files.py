"""What a dump takes from a checkpoint: tokenizer, chat template, config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from relax.dump.write.disk import disk_errors, hash_file

TOKENIZER_FILES: Final = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files that a Hugging Face tokenizer is read from."""


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The tokenizer's files of a checkpoint, and hashes that tell models apart.

    Attributes:
        folder: The checkpoint.
        tokenizer: SHA-256 of each of the tokenizer's files, by name.
        tokenizer_sha256: Over their names and bytes; '' without any.
        chat_template_sha256: Over the template's text; '' without one.
        model_config_sha256: Over the bytes of ``config.json``; '' without it.
    """

    folder: Path
    tokenizer: Mapping[str, str] = field(default_factory=dict)
    tokenizer_sha256: str = ""
    chat_template_sha256: str = ""
    model_config_sha256: str = ""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Reads a checkpoint's folder.

        Raises:
            DumpError: A file in it cannot be read.
        """
        config = folder / "config.json"
        with disk_errors(folder):
            hashes = {
                name: hash_file(folder / name)
                for name in TOKENIZER_FILES
                if (folder / name).is_file()
            }
            config_hash = hash_file(config) if config.is_file() else ""
        listed = "".join(f"{name} {sha256}\n" for name, sha256 in hashes.items())
        return cls(
            folder=folder,
            tokenizer=hashes,
            tokenizer_sha256=_hash(listed.encode()),
            chat_template_sha256=_hash(_chat_template(folder)),
            model_config_sha256=config_hash,
        )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""


def _chat_template(folder: Path) -> bytes:
    """The chat template's text; it has a file of its own or lies in the config."""
    own = folder / "chat_template.jinja"
    with disk_errors(folder):
        if own.is_file():
            return own.read_bytes()
        for name in ("chat_template.json", "tokenizer_config.json"):
            path = folder / name
            if not path.is_file():
                continue
            try:
                document = json.loads(path.read_bytes())
            except ValueError:
                # A broken file is the tokenizer's matter; its bytes are hashed anyway.
                continue
            template = document.get("chat_template") if document else None
            if template:
                text = template if isinstance(template, str) else json.dumps(template)
                return text.encode("utf-8", "surrogatepass")
    return b""
