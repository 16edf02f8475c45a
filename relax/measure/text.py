"""Measures on response text and token ids: repetition, broken characters, scripts."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

# Upstream's repetition detector: overlapping windows of the response, compared with
# their own zlib-compressed size (facts of its `repetition_frac`).
REPETITION_WINDOW = 10_000
REPETITION_STRIDE = 5_000
REPETITION_RATIO = 10.0

_WORD = re.compile(r"[^\W\d_]+")

# Scripts that ordinary text writes without a space beside Latin letters: Chinese with
# English terms, Thai with brand names, formulas with Greek letters.
_FREE_BESIDE_LATIN = frozenset({"CJK", "THAI", "GREEK", "LAO", "KHMER", "MYANMAR"})
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "KANGXI")
# Letters of formulas and units, no language's own script.
_NO_SCRIPT = ("MATHEMATICAL", "MICRO", "OHM", "KELVIN", "ANGSTROM", "MODIFIER")
_LATIN_FORMS = ("FULLWIDTH", "HALFWIDTH", "FEMININE", "MASCULINE", "DOUBLE-STRUCK")


def max_compression_ratio(text: str) -> float | None:
    """Largest ratio of characters to zlib-compressed bytes over windows of the text.

    Upstream's formula: windows of 10,000 characters every 5,000, one more ending at the
    tail; a shorter text is one window; zlib level 9.

    Args:
        text: The response.

    Returns:
        The largest ratio, UTF-8 bytes over compressed bytes; None for an empty text.
    """
    if not text:
        return None
    last = max(len(text) - REPETITION_WINDOW, 0)
    starts = [*range(0, last, REPETITION_STRIDE), last]
    ratios = []
    for start in starts:
        window = text[start : start + REPETITION_WINDOW].encode("utf-8", "replace")
        ratios.append(len(window) / len(zlib.compress(window, 9)))
    return max(ratios)


def is_repetitive(text: str) -> bool:
    """Whether a window of the text compresses more than tenfold (upstream's flag)."""
    ratio = max_compression_ratio(text)
    return ratio is not None and ratio > REPETITION_RATIO


def effective_length(response_length: int, loss_mask: Sequence[int] | None) -> int:
    """Response tokens that count: the mask's sum, or all when there is no mask.

    Args:
        response_length: Response tokens R.
        loss_mask: 0 or 1 for each of them, or None when the sample has none.

    Returns:
        Number of tokens.
    """
    return response_length if loss_mask is None else int(sum(loss_mask))


def repeated_ngram_share(token_ids: Sequence[int], *, n: int = 4) -> float | None:
    """Share of n-grams that have occurred before in the same response.

    Args:
        token_ids: Response tokens.
        n: Length of a gram.

    Returns:
        0.0 when all differ, near 1 for a loop; None for fewer than n tokens.
    """
    total = len(token_ids) - n + 1
    if total < 1:
        return None
    distinct = len({tuple(token_ids[start : start + n]) for start in range(total)})
    return 1 - distinct / total


def longest_run(token_ids: Sequence[int]) -> int:
    """Length of the longest run of one token id; 0 without tokens."""
    return max((len(list(run)) for _, run in groupby(token_ids)), default=0)


def most_common_share(token_ids: Sequence[int]) -> float | None:
    """Share of the most frequent token id; None without tokens."""
    if not token_ids:
        return None
    return Counter(token_ids).most_common(1)[0][1] / len(token_ids)


def replacement_share(text: str) -> float | None:
    """Share of U+FFFD, the mark of bytes that are no UTF-8; None for an empty text.

    Marks at the very end are not counted: a response cut inside a character, as an
    emoji, ends with them.
    """
    kept = text.rstrip("\ufffd")
    return kept.count("\ufffd") / len(text) if text else None


def control_share(text: str) -> float | None:
    """Share of control, private-use and unassigned characters; None for an empty text.

    Tab, newline, carriage return, form feed and escape (coloured program output) are
    ordinary, and so are the joiners inside emoji and Indic text.
    """
    if not text:
        return None
    bad = sum(
        unicodedata.category(char) in {"Cc", "Co", "Cn"} and char not in "\t\n\r\f\x1b"
        for char in text
    )
    return bad / len(text)


def mixed_script_share(text: str) -> tuple[int, int]:
    """Counts words whose letters come from scripts that do not share words.

    Chinese, Japanese and Korean are one script here, and they, Thai and Greek stand
    beside Latin letters without a space in ordinary text; such words do not count.

    Args:
        text: The response.

    Returns:
        Mixed words, and words of at least two letters.
    """
    words = [word for word in _WORD.findall(text) if len(word) > 1]
    return sum(map(_is_mixed, words)), len(words)


def _is_mixed(word: str) -> bool:
    if word.isascii():
        return False
    scripts = {script for char in word if (script := _script(char))}
    if "LATIN" in scripts:
        scripts -= _FREE_BESIDE_LATIN
    return len(scripts) > 1


@lru_cache(maxsize=65_536)
def _script(char: str) -> str | None:
    """The script of a letter by the first word of its Unicode name; None for marks."""
    first = unicodedata.name(char, "").split(" ", 1)[0]
    if first.startswith(_EAST_ASIAN):
        return "CJK"
    if first.startswith(_NO_SCRIPT) or not first:
        return None
    return "LATIN" if first.startswith(_LATIN_FORMS) else first
