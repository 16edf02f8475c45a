"""The vocabulary as bytes, so that a console can show any single token.

Decoding one token at a time loses what is only half a character or a leading space.
Instead the stored form of each token is turned back into the bytes that it stands for:

    byte-level BPE   ``Ġthe``     each character stands for one byte
    SentencePiece    ``▁the``     ▁ is a space, ``<0x0A>`` one byte
    anything else    ``the``      as written, in UTF-8
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relax.records.open import Vocabulary

VocabularyRow = tuple[int, bytes, bool]

SPACE_MARK = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def vocabulary_rows(tokenizer: Any) -> list[VocabularyRow]:
    """All tokens by id.

    Args:
        tokenizer: A Hugging Face tokenizer, fast or slow.

    Returns:
        ``(id, bytes, special)`` in order of id; ids that no token has are left out.
        Tokens that were added are taken as written.
    """
    added = tokenizer.added_tokens_decoder
    to_bytes = _reader(tokenizer)
    rows = {
        index: (index, to_bytes(token), False)
        for token, index in tokenizer.get_vocab().items()
    }
    for index, token in added.items():
        rows[index] = (index, str(token.content).encode(), bool(token.special))
    for index in tokenizer.all_special_ids:
        if index in rows:
            rows[index] = (index, rows[index][1], True)
    return [rows[index] for index in sorted(rows)]


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """All tokens of a tokenizer, and the name of their content."""

    rows: Sequence[VocabularyRow]
    digest: str

    def texts(self) -> Vocabulary:
        """What any token looks like on its own."""
        return Vocabulary(
            {index: text for index, text, _ in self.rows},
            frozenset(index for index, _, special in self.rows if special),
        )


def checkpoint_vocabulary(checkpoint: str) -> TokenTable:
    """The tokens of a checkpoint's tokenizer."""
    # Heavy, and needed only where no rollout side has read it already.
    from transformers import AutoTokenizer  # noqa: PLC0415

    rows = vocabulary_rows(AutoTokenizer.from_pretrained(checkpoint))
    return TokenTable(rows=rows, digest=vocabulary_hash(rows))


def vocabulary_hash(rows: Iterable[VocabularyRow]) -> str:
    """Names a vocabulary by its content: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for index, text, special in rows:
        digest.update(f"{index} {len(text)} {int(special)} ".encode() + text)
    return digest.hexdigest()[:16]


def _reader(tokenizer: Any) -> Callable[[str], bytes]:
    """How this tokenizer's tokens are written, asked of its decoder."""
    kinds = _decoder_kinds(tokenizer)
    if "ByteLevel" in kinds:
        return _from_byte_level
    if kinds & {"Metaspace", "ByteFallback"} or _replaces_space_mark(tokenizer):
        return _from_sentencepiece
    return str.encode


def _decoder_kinds(tokenizer: Any) -> set[str]:
    decoder = _decoder_state(tokenizer)
    parts = [decoder, *decoder.get("decoders", [])]
    return {str(part.get("type")) for part in parts}


def _replaces_space_mark(tokenizer: Any) -> bool:
    decoder = _decoder_state(tokenizer)
    if not decoder:
        # A slow tokenizer says nothing of how it writes: SentencePiece ones have marks.
        return any(token.startswith(SPACE_MARK) for token in tokenizer.get_vocab())
    parts = [decoder, *decoder.get("decoders", [])]
    return any(part.get("pattern") == {"String": SPACE_MARK} for part in parts)


def _decoder_state(tokenizer: Any) -> dict[str, Any]:
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.decoder is None:
        return {}
    # The pickled form of a decoder is its JSON, which says its type.
    state: dict[str, Any] = json.loads(
        tokenizer.backend_tokenizer.decoder.__getstate__()
    )
    return state


def _from_byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()


def _from_sentencepiece(token: str) -> bytes:
    single = _BYTE.fullmatch(token)
    if single:
        return bytes([int(single[1], 16)])
    return token.replace(SPACE_MARK, " ").encode()


def _byte_level_alphabet() -> dict[str, int]:
    """Characters of byte-level BPE: printable bytes stand for themselves.

    The other 68 bytes take the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(0x100) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(rest)})
    return alphabet


_BYTE_OF = _byte_level_alphabet()
