"""Tokens as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from relax.engine.rollout.vocabulary import vocabulary_hash, vocabulary_rows

SENTENCEPIECE = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)


def wrapped(vocabulary, decoder, *, unknown=None, special="<eos>"):
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[],
            unk_token=unknown,
            byte_fallback="<0x00>" in vocabulary,
        )
    )
    if decoder is not None:
        backend.decoder = decoder
    if isinstance(decoder, decoders.ByteLevel):
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=special)


@pytest.fixture(scope="module")
def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    tokenizer = wrapped(vocabulary, decoders.ByteLevel())
    tokenizer.add_tokens(["<think>"])
    return tokenizer


@given(text=st.text(max_size=20))
def test_byte_level_tokens_are_the_bytes_of_the_text(byte_level, text):
    rows = {index: raw for index, raw, _ in vocabulary_rows(byte_level)}
    ids = byte_level.encode(text, add_special_tokens=False)
    assert b"".join(rows[index] for index in ids) == text.encode()


def test_every_byte_has_its_token(byte_level):
    rows = vocabulary_rows(byte_level)
    single = {raw for _, raw, _ in rows if len(raw) == 1}
    assert single == {bytes([byte]) for byte in range(256)}
    added = {raw: special for _, raw, special in rows if len(raw) > 1}
    assert added == {b"<eos>": True, b"<think>": False}


def test_sentencepiece_marks_are_spaces_and_bytes():
    pieces = ["▁the", "re", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = wrapped({piece: i for i, piece in enumerate(pieces)}, SENTENCEPIECE)
    raws = [raw for _, raw, _ in vocabulary_rows(tokenizer)]
    assert raws[:2] == [b" the", b"re"]
    assert raws[2:258] == [bytes([byte]) for byte in range(256)]


def test_other_tokens_are_as_written():
    tokenizer = wrapped({"Ġa": 0, "▁b": 1, "é": 2}, decoders.Fuse())
    rows = vocabulary_rows(tokenizer)
    assert [raw for _, raw, _ in rows[:3]] == [
        "Ġa".encode(),
        "▁b".encode(),
        b"\xc3\xa9",
    ]


def test_the_hash_names_the_content(byte_level):
    rows = vocabulary_rows(byte_level)
    assert vocabulary_hash(rows) == vocabulary_hash(list(rows))
    index, raw, special = rows[0]
    for changed in ((index, raw + b"!", special), (index, raw, not special)):
        assert vocabulary_hash([changed, *rows[1:]]) != vocabulary_hash(rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
