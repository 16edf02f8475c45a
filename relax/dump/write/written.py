"""What a writer says of a file that it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that is on the disk under its final name.

    Attributes:
        path: Its final name.
        bytes: Its size.
        sha256: Hash over its bytes, in hexadecimal, computed while it was written.
    """

    path: Path
    bytes: int
    sha256: str
