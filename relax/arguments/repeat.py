"""The words that give a run's arguments once more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from relax.arguments.refusal import dashed


def was_given(entry: Mapping[str, Any]) -> bool:
    """Whether a flag or a file set a value, of `Arguments.to_json`'s entries."""
    origin = str(entry["origin"])
    return origin != "default" and not origin.startswith("derived")


def words_again(
    arguments: Mapping[str, Mapping[str, Any]], *, leave_out: Collection[str] = ()
) -> Iterator[str]:
    """The words of every argument that a flag or a file set.

    Args:
        arguments: As `Arguments.to_json` gives them, or a part of it.
        leave_out: Names that are not to be given again.

    Yields:
        Words of a command line, not quoted. A secret stands there as ``<redacted>``.
    """
    for name, entry in arguments.items():
        value = entry["value"]
        if name in leave_out or value is None or not was_given(entry):
            continue
        if isinstance(value, bool):
            yield dashed(name) if value else f"{dashed(name)}=false"
        elif isinstance(value, list):
            yield dashed(name)
            yield from map(str, value)
        else:
            # One word: a value that begins with a dash would be read as a flag.
            yield f"{dashed(name)}={value}"
