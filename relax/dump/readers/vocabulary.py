"""Token texts that a dump carries (``decoded_tokens``) → our vocabulary file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from relax.dump.readers.values import Ints
from relax.records.schema import VOCAB
from relax.records.write import write_table

LARGEST_ID: Final = 1 << 22


class TokenTexts:
    """The text of each token id, as far as samples name them."""

    def __init__(self) -> None:
        self._known = np.zeros(1 << 18, bool)
        self._texts: dict[int, str] = {}

    def add(self, tokens: Ints | None, decoded: object) -> None:
        """Takes the texts of ids that are new.

        Args:
            tokens: [T] of a sample.
            decoded: Its texts, one an id; anything else is passed over.
        """
        if type(decoded) is not list or tokens is None or len(decoded) != tokens.size:
            return
        if not tokens.size or tokens.min() < 0 or tokens.max() >= LARGEST_ID:
            return
        while self._known.size <= tokens.max():
            self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        new = np.flatnonzero(~self._known[tokens])
        for place in new.tolist():
            text = decoded[place]
            if type(text) is str:
                self._texts.setdefault(int(tokens[place]), text)
        self._known[tokens[new]] = True

    def write(self, folder: Path, *, name: str) -> str:
        """Writes them; '' when there are none.

        Args:
            folder: The step record's folder.
            name: The file's name.

        Returns:
            The file's name, which records carry.
        """
        if not self._texts:
            return ""
        ids = sorted(self._texts)
        texts = [self._texts[i].encode("utf-8", "surrogatepass") for i in ids]
        arrays = [
            pa.array(ids, VOCAB.field("id").type),
            pa.array(texts, VOCAB.field("bytes").type),
            # Which ids are special is not in the dump.
            pa.array([False] * len(ids), VOCAB.field("special").type),
        ]
        write_table(folder / name, pa.Table.from_arrays(arrays, schema=VOCAB))
        return name
