"""One row of the catalogue: a rollout's dump of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.dump.look import FORMATS
from relax.dump.manifest import Manifest, ManifestFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedFile:
    """One file of a dump.

    Attributes:
        bytes: Its size; 0 when it is missing.
        rank: Global rank of a train file, when it is known.
        fault: Why it cannot be used; '' when a look finds nothing.
        listed: What the manifest says of it; None without a manifest.
    """

    path: Path
    bytes: int
    rank: int | None = None
    fault: str = ""
    listed: ManifestFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpEntry:
    """The dump of one rollout, of one kind.

    Attributes:
        kind: ``rollout`` or ``train``.
        name: What stands for ``{rollout_id}`` in its name: ``37`` or ``eval_37``.
        rollout_id: As the manifest, the file, or else its name says.
        files: One for a rollout dump, one a rank for train dumps; in order of rank.
        format: What a look takes it for (`relax.dump.look.FORMATS`).
        manifest: What our manifest says; None for another engine's dump.
        manifest_path: Where the manifest lies.
    """

    kind: str
    name: str
    rollout_id: int | None
    files: tuple[CataloguedFile, ...]
    format: str
    manifest: Manifest | None = None
    manifest_path: Path | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have a usable file."""
        return tuple(
            file.rank for file in self.files if file.rank is not None and not file.fault
        )

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.files)

    @property
    def step_bytes(self) -> int:
        """Bytes of all files that its manifest names; of its own without one."""
        return self.bytes if self.manifest is None else self.manifest.num_bytes

    @property
    def faults(self) -> tuple[str, ...]:
        """What a look finds wrong, one sentence each."""
        return tuple(f"{f.path}: {f.fault}" for f in self.files if f.fault)

    @property
    def coverage(self) -> str:
        """How much of the step is here, as far as it is known."""
        if self.kind == "rollout":
            known = None if self.manifest is None else self.manifest.coverage.samples
            if known is None:
                return ""
            return f"{known} sample{'' if known == 1 else 's'}"
        if self.format == "train-v2":
            # One file holds all shards; the rank in it is the one that wrote.
            return ""
        if not self.ranks:
            return "" if len(self.files) == 1 else f"{len(self.files)} files"
        world = 0 if self.manifest is None else self.manifest.coverage.world_size
        if world:
            return f"{len(self.ranks)} of {world} ranks"
        return f"rank{'' if len(self.ranks) == 1 else 's'} {_ranges(self.ranks)}"

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data; the manifest only by its path."""
        manifest = self.manifest
        return {
            "kind": self.kind,
            "name": self.name,
            "rollout_id": self.rollout_id,
            "format": FORMATS[self.format],
            "ranks": list(self.ranks),
            "bytes": self.bytes,
            "coverage": self.coverage,
            "run_id": None if manifest is None else manifest.run_id,
            "manifest": None if self.manifest_path is None else str(self.manifest_path),
            "files": [
                {
                    "path": str(file.path),
                    "bytes": file.bytes,
                    "rank": file.rank,
                    "fault": file.fault,
                }
                for file in self.files
            ],
        }


def _ranges(ranks: tuple[int, ...]) -> str:
    """Numbers as a person writes them: ``0-3, 6``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return ", ".join("-".join(map(str, run)) for run in runs)
