"""How many dumps of a run stay on the disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from relax.dump.manifest import Manifest, read_manifest
from relax.dump.paths import MANIFEST_SUFFIX
from relax.dump.removal import remove_named
from relax.errors import DumpError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Bounds; None is none.

    Attributes:
        keep_last: Dumps to keep.
        max_bytes: Bytes that the kept dumps may have together.
    """

    keep_last: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedDump:
    """A dump that had to go, or that could not.

    Attributes:
        rollout_id: Its rollout.
        manifest: The path that its manifest had.
        bytes: What became free.
        reason: Why it went.
        left: Why files of it are still there; '' when none are.
    """

    rollout_id: int
    manifest: Path
    bytes: int
    reason: str
    left: str = ""

    def __str__(self) -> str:
        text = f"rollout {self.rollout_id}: {self.bytes} bytes freed, {self.reason}"
        return f"{text}; {self.left}" if self.left else text


def prune(
    newest: Path, retention: Retention, *, folders: Collection[Path]
) -> tuple[PrunedDump, ...]:
    """Removes the oldest dumps of the same run until the bounds hold.

    Only what a manifest beside ``newest`` names is touched, only dumps of the same run,
    only regular files of the size that the manifest gives, and never the newest dump.

    Args:
        newest: Manifest of the dump that was just written.
        retention: The bounds.
        folders: Folders, resolved, that files may be removed from.

    Returns:
        What went, oldest first.

    Raises:
        DumpError: The newest manifest cannot be read.
    """
    if retention.keep_last is None and retention.max_bytes is None:
        return ()
    mine = read_manifest(newest)
    older = sorted(
        _others(newest, mine), key=lambda item: (item[1].written_at, item[1].rollout_id)
    )
    pruned: list[PrunedDump] = []
    while older:
        reason = _exceeded(retention, [mine, *(item[1] for item in older)])
        if not reason:
            break
        path, manifest = older.pop(0)
        pruned.append(_remove(path, manifest, reason=reason, folders=folders))
    return tuple(pruned)


def _others(newest: Path, mine: Manifest) -> list[tuple[Path, Manifest]]:
    found = []
    for path in newest.parent.glob(f"*{MANIFEST_SUFFIX}"):
        if path == newest:
            continue
        try:
            manifest = read_manifest(path)
        except DumpError:
            # Not readable is not ours to remove; `dumps ls` shows it.
            continue
        if manifest.run_id == mine.run_id:
            found.append((path, manifest))
    return found


def _exceeded(retention: Retention, manifests: list[Manifest]) -> str:
    """Which bound these dumps exceed, in words; '' for none."""
    keep, most = retention.keep_last, retention.max_bytes
    if keep is not None and len(manifests) > keep:
        return f"--dump-keep-last {keep}"
    if most is not None and sum(m.num_bytes for m in manifests) > most:
        return f"--dump-max-bytes {most}"
    return ""


def _remove(
    path: Path, manifest: Manifest, *, reason: str, folders: Collection[Path]
) -> PrunedDump:
    removed = remove_named(path, manifest, within=lambda folder: folder in folders)
    return PrunedDump(
        rollout_id=manifest.rollout_id,
        manifest=path,
        bytes=removed.bytes,
        reason=reason,
        left="; ".join(removed.left),
    )
