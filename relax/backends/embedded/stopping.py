"""Stop texts: responses that end when a given text appears.

The slow path of the embedded engine: after each token the last few tokens of the row
are decoded and searched. Prefer ``stop_token_ids`` where one token says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SPARE_TOKENS = 4
"""Decoded before the window, so that a character cut in two does not hide a match."""


class StopText:
    """Looks for stop texts at the end of one response.

    Args:
        texts: What to look for; not empty.
        tokenizer: Decodes ids to text.
        skip_special_tokens: Whether special tokens are left out of the text.
    """

    def __init__(
        self, texts: Sequence[str], *, tokenizer: Any, skip_special_tokens: bool
    ) -> None:
        self._texts = tuple(texts)
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        # A token stands for at least one byte, so this many tokens hold every match
        # that ends in the newest one.
        self.window = max(len(text.encode()) for text in texts) + SPARE_TOKENS

    def completed_by(self, ids: Sequence[int]) -> bool:
        """Whether the text of the last `window` ids holds a stop text."""
        text = self._tokenizer.decode(ids, skip_special_tokens=self._skip)
        return any(stop in text for stop in self._texts)
