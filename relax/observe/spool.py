"""What processes of a node write where the run folder is not to be seen.

They write into a folder of their own node, the spool, as they would into the run
folder. Whoever carries it over says how much of each file has arrived, so that an
answer that got lost is given again, and nothing arrives twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from relax.errors import InternalError

MOST_BYTES = 4 << 20
"""Of one answer."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """New content of a spool.

    Attributes:
        pieces: By path inside the spool: what follows after what has arrived.
        more: There is more than fitted into the answer.
    """

    pieces: Mapping[str, bytes]
    more: bool


def take(spool: Path, arrived: Mapping[str, int]) -> Taken:
    """Reads on.

    Args:
        spool: The folder.
        arrived: By path: bytes that have arrived.
    """
    pieces: dict[str, bytes] = {}
    room = MOST_BYTES
    for path in sorted(spool.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        name = path.relative_to(spool).as_posix()
        with path.open("rb") as stream:
            stream.seek(arrived.get(name, 0))
            piece = stream.read(room)
        if piece:
            pieces[name] = piece
            room -= len(piece)
        if not room:
            return Taken(pieces=pieces, more=True)
    return Taken(pieces=pieces, more=False)


class Arrivals:
    """Puts what comes from one spool into the run folder.

    Args:
        run_dir: The run folder.

    Attributes:
        arrived: By path: bytes that have arrived.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.arrived: dict[str, int] = {}

    def put(self, taken: Taken) -> None:
        """Appends the pieces to the files of the same names.

        Raises:
            InternalError: A path leads out of the folder.
        """
        for name, piece in taken.pieces.items():
            relative = PurePosixPath(name)
            if relative.is_absolute() or ".." in relative.parts:
                raise InternalError(f"a spool names {name!r}, outside the run folder")
            path = self._run_dir / relative
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("ab") as stream:
                stream.write(piece)
            self.arrived[name] = self.arrived.get(name, 0) + len(piece)
