"""Measures on text: what they find, and what they leave alone."""

from __future__ import annotations

import random

import pytest

from relax.measure.text import (
    control_share,
    effective_length,
    is_repetitive,
    longest_run,
    max_compression_ratio,
    mixed_script_share,
    most_common_share,
    repeated_ngram_share,
    replacement_share,
)


def test_repetition_is_found_in_the_middle_and_at_the_tail():
    letters = random.Random(0)
    noise = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=12_000))
    assert not is_repetitive(noise)
    assert is_repetitive(noise + "la " * 5_000 + noise)
    assert is_repetitive(noise + "x" * 10_000)
    assert max_compression_ratio("") is None
    assert not is_repetitive("ha ha ha ha")


def test_token_measures():
    assert repeated_ngram_share([1, 2, 3]) is None
    assert repeated_ngram_share(list(range(50))) == 0.0
    assert repeated_ngram_share([1, 2] * 50) == pytest.approx(1 - 2 / 97)
    assert longest_run([1, 1, 2, 2, 2, 1]) == 3
    assert longest_run([]) == 0
    assert most_common_share([4, 4, 4, 1]) == 0.75
    assert most_common_share([]) is None
    assert effective_length(4, None) == 4
    assert effective_length(4, [1, 0, 1, 1]) == 3


def test_broken_characters():
    assert replacement_share("ab\ufffdcd") == pytest.approx(0.2)
    assert replacement_share("a smile \ufffd\ufffd") == 0.0
    assert replacement_share("") is None
    assert control_share("a\x00b\x01") == 0.5
    assert control_share("tab\tline\r\n\x1b[31mred 👩‍👩‍👧") == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "使用Python编写一个函数，返回list的长度",
        "彼はコーヒーをのみながらemailを書いた",
        "한국어와English를 섞어 쓴다",
        "ฉันชอบใช้iPhoneมาก",
        "где IT-отдел и 5G-сеть",
        "∀ε>0 ∃δ>0: |x−a|<δ ⇒ |f(x)−L|<ε, αx+βy, sinθ, Δx, μm, 5kΩ",
        "naïve façade Straße Ørsted",
    ],
)
def test_ordinary_mixtures_are_not_mixed_words(text):
    assert mixed_script_share(text)[0] == 0


def test_alien_scripts_in_one_word_are():
    assert mixed_script_share("Моskваtion ofअनुde gooדד fine")[0] == 3
