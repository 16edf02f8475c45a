"""What a reader has to say about a dump, each thing once."""

from __future__ import annotations

import copy
from typing import Final

MOST_NOTES: Final = 100
PLACES_NAMED: Final = 5


class Notes:
    """Collects remarks; those that differ only in the sample become one.

    Attributes:
        file: Name of the file that is being read, where there are several.
    """

    def __init__(self) -> None:
        self.file = ""
        self._places: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._dropped = 0

    def add(self, text: str, *, sample: int | None = None) -> None:
        """Adds a remark.

        Args:
            text: One sentence without a full stop.
            sample: Position in the file of the sample that it is about.
        """
        if text not in self._counts and len(self._counts) >= MOST_NOTES:
            self._dropped += 1
            return
        self._counts[text] = self._counts.get(text, 0) + 1
        named = self._places.setdefault(text, [])
        if sample is not None and len(named) < PLACES_NAMED:
            named.append(f"{sample} of {self.file}" if self.file else str(sample))

    def copy(self) -> Notes:
        """The remarks so far, for the case that a file has to be read again."""
        return copy.deepcopy(self)

    def restore(self, earlier: Notes) -> None:
        """Goes back to an earlier `copy`."""
        self.__dict__.update(earlier.copy().__dict__)

    def lines(self) -> tuple[str, ...]:
        """The remarks in the order in which they came up, with the samples."""
        lines = [
            text + self._where(self._places[text], count)
            for text, count in self._counts.items()
        ]
        if self._dropped:
            lines.append(f"{self._dropped} more remarks were left out")
        return tuple(lines)

    @staticmethod
    def _where(named: list[str], count: int) -> str:
        if not named:
            return ""
        more = count - len(named)
        places = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return f" ({'samples' if count > 1 else 'sample'} {places})"
