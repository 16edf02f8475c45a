"""Removing dumps from the disk: files first, then the manifest that names them.

What is cut short leaves a manifest, so that the rest is found and removed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from relax.dump.entry import DumpEntry
from relax.dump.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a removal did.

    Attributes:
        files: Dump files that went.
        bytes: Bytes that they had.
        left: What is still there and why, one sentence each.
    """

    files: int
    bytes: int
    left: tuple[str, ...] = ()


def removable(entries: Iterable[DumpEntry]) -> list[DumpEntry]:
    """One entry for each removal: a manifest's rollout and train dumps go together."""
    kept: dict[Path, DumpEntry] = {}
    for entry in entries:
        kept.setdefault(entry.manifest_path or entry.files[0].path, entry)
    return list(kept.values())


def remove_dump(entry: DumpEntry, *, root: Path) -> Removed:
    """Removes a dump: with a manifest the whole step that it names, else its files.

    Only regular files below ``root`` of the size that the catalogue knows are touched:
    a manifest is a file that anybody may have written. Weights that were dumped beside
    stay.

    Args:
        entry: From `relax.dump.catalogue.find_dumps`.
        root: The folder that was catalogued.
    """
    top = root.resolve()

    def within(folder: Path) -> bool:
        return folder == top or top in folder.parents

    if entry.manifest is None or entry.manifest_path is None:
        return _remove([(f.path, f.bytes) for f in entry.files], within=within)
    return remove_named(entry.manifest_path, entry.manifest, within=within)


def remove_named(
    path: Path, manifest: Manifest, *, within: Callable[[Path], bool]
) -> Removed:
    """Removes the files that a manifest names, then the manifest.

    Args:
        path: Where the manifest lies.
        manifest: What it says.
        within: Whether files of a folder, resolved, may be removed.
    """
    named = [(path.parent / file.path, file.bytes) for file in manifest.files]
    removed = _remove(named, within=within)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        left = (*removed.left, f"{path} could not be removed: {error.strerror}")
        return Removed(files=removed.files, bytes=removed.bytes, left=left)
    return removed


def _remove(
    files: Iterable[tuple[Path, int]], *, within: Callable[[Path], bool]
) -> Removed:
    count = freed = 0
    left = []
    for place, num_bytes in files:
        try:
            if not place.exists():
                continue
            if not within(place.parent.resolve()):
                left.append(f"{place} lies outside of the dumps' folder, and stays")
                continue
            if (
                place.is_symlink()
                or not place.is_file()
                or place.stat().st_size != num_bytes
            ):
                left.append(f"{place} is not the file that was dumped, and stays")
                continue
            place.unlink()
            count, freed = count + 1, freed + num_bytes
        except OSError as error:
            left.append(f"{place} could not be removed: {error.strerror}")
    return Removed(files=count, bytes=freed, left=tuple(left))
