"""Which id a text is, from ``tokenizer.json`` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from relax.errors import ArgumentError

TURN_ENDS: Final = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "</s>",
)
"""What ends a turn in the chat templates of common models, in this order."""


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """Texts and ids of a tokenizer.

    Attributes:
        added: Tokens that are matched before anything is split, by text.
        vocab: Ordinary tokens, in the vocabulary's own spelling.
        path: Where it was read from.
    """

    added: Mapping[str, int]
    vocab: Mapping[str, int]
    path: str

    def __len__(self) -> int:
        """Number of ids: the largest and one."""
        ids = (*self.added.values(), *self.vocab.values())
        return max(ids, default=-1) + 1

    def id_of(self, text: str) -> int | None:
        """The id of a text that is one token; None when it is several."""
        if text in self.added:
            return self.added[text]
        spellings = (text, _byte_spelling(text), text.replace(" ", "\u2581"))
        return next((self.vocab[s] for s in spellings if s in self.vocab), None)

    def is_exact(self, text: str) -> bool:
        """Whether the text always is this one id: true of added tokens only.

        An ordinary token's text also turns up inside longer tokens.
        """
        return text in self.added

    @property
    def turn_end(self) -> tuple[str, int] | None:
        """The token that ends a turn, as far as its text tells."""
        for text in TURN_ENDS:
            if text in self.added:
                return text, self.added[text]
        return None


def read_tokenizer(path: Path) -> TokenTable:
    """Reads a tokenizer.

    Args:
        path: ``tokenizer.json``, or the folder of a checkpoint that has one.

    Raises:
        ArgumentError: There is none, or it is not what its name says.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
        added = {
            str(token["content"]): int(token["id"])
            for token in document.get("added_tokens") or ()
        }
        vocab = _vocabulary(document.get("model") or {})
    except OSError as error:
        raise ArgumentError(
            f"no tokenizer can be read: {error.strerror}",
            where=str(file),
            hint="name tokenizer.json, or the checkpoint's folder",
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArgumentError(
            f"is no tokenizer.json ({type(error).__name__})", where=str(file)
        ) from error
    return TokenTable(added=added, vocab=vocab, path=str(file))


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    vocab = model.get("vocab") or {}
    if isinstance(vocab, Mapping):
        return {str(text): int(number) for text, number in vocab.items()}
    # Unigram: [[text, score], …], the place is the id.
    return {str(entry[0]): number for number, entry in enumerate(vocab)}


@lru_cache(maxsize=1)
def _byte_letters() -> dict[int, str]:
    """The letters that byte-level vocabularies write bytes as.

    Printable bytes stand for themselves; the others are numbered from 256 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters: dict[int, str] = {}
    spare = 0
    for byte in range(256):
        if byte in printable:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + spare)
            spare += 1
    return letters


def _byte_spelling(text: str) -> str:
    letters = _byte_letters()
    return "".join(letters[byte] for byte in text.encode("utf-8", "replace"))
