"""Which dumps lie in a folder: ours and those of other engines, without opening them.

Names, sizes, manifests and a look at a few kilobytes of each file (`relax.dump.look`);
nothing is decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relax.dump.entry import CataloguedFile, DumpEntry
from relax.dump.look import Look, look
from relax.dump.manifest import Manifest, ManifestFile, read_manifest
from relax.dump.paths import MANIFEST_SUFFIX
from relax.dump.verify import verify
from relax.errors import DumpError, DumpMissing

__all__ = ["CataloguedFile", "DumpEntry", "find_dumps", "verify"]

DEEPEST: Final = 4
MOST_FILES: Final = 100_000
SUFFIX: Final = ".pt"

_RANK_NAME: Final = re.compile(r"(?:.*?_)??(?P<name>(?:eval_)?\d+)_(?P<rank>\d+)")
_NAME: Final = re.compile(r"(?:.*?_)??(?P<name>(?:eval_)?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A file and all that is known of it, before files are put together."""

    file: CataloguedFile
    kind: str
    layout: str
    name: str
    rollout_id: int | None
    manifest: Manifest | None
    manifest_path: Path | None


def find_dumps(folder: Path) -> list[DumpEntry]:
    """The dumps in a folder and below, ordered by rollout.

    Args:
        folder: A folder; or one dump file; or a manifest, for the files it names.

    Raises:
        DumpMissing: There is no such folder or file.
        DumpError: It cannot be read.
    """
    if not folder.exists():
        raise DumpMissing("there is no such folder or file", where=str(folder))
    try:
        paths = list(_files(folder))
    except OSError as error:
        raise DumpError(
            f"it cannot be read: {error.strerror}", where=str(folder)
        ) from error
    listed = _listed(paths)
    found = [item for path in paths if (item := _found(path, listed)) is not None]
    here = {item.file.path.resolve() for item in found}
    if folder.is_dir() or folder.name.endswith(MANIFEST_SUFFIX):
        for path, told in listed.items():
            if path in here:
                continue
            # A train dump may lie in another place than its rollout dump.
            other = _found(path, listed) if path.is_file() else None
            found.append(other or _missing(path, *told))
    return sorted(_entries(found), key=_order)


def _files(folder: Path) -> Iterator[Path]:
    """Dump files and manifests at most a few levels down; links are not followed."""
    if folder.is_file():
        yield folder
        if folder.name.endswith(MANIFEST_SUFFIX):
            # What is wrong with it is the answer then.
            read_manifest(folder)
        else:
            yield from _manifests_beside(folder)
        return
    count = 0
    top = len(folder.parts)
    for place, folders, names in os.walk(folder, onerror=_raise):
        here = Path(place)
        if len(here.parts) - top >= DEEPEST:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or not name.endswith((SUFFIX, MANIFEST_SUFFIX)):
                continue
            count += 1
            if count > MOST_FILES:
                raise DumpError(
                    f"more than {MOST_FILES} files: name a folder further down",
                    where=str(folder),
                )
            yield here / name


def _manifests_beside(file: Path) -> Iterator[Path]:
    """Manifests that may name this file: beside it, or in a folder beside its own."""
    yield from file.parent.glob(f"*{MANIFEST_SUFFIX}")
    stem = file.stem.rpartition("_")[0] or file.stem
    yield from file.parent.parent.glob(f"*/{stem}{MANIFEST_SUFFIX}")


def _raise(error: OSError) -> None:
    raise error


_Listing = dict[Path, tuple[ManifestFile, Manifest, Path]]


def _listed(paths: Iterable[Path]) -> _Listing:
    """By resolved path: what manifests say of files."""
    listed: _Listing = {}
    for path in paths:
        if not path.name.endswith(MANIFEST_SUFFIX):
            continue
        try:
            manifest = read_manifest(path)
        except DumpError:
            # The files are shown as dumps without a manifest, and verify says why.
            continue
        for file in manifest.files:
            listed[(path.parent / file.path).resolve()] = (file, manifest, path)
    return listed


def _found(path: Path, listed: _Listing) -> _Found | None:
    """What is known of a file; None when it is not a dump."""
    if path.name.endswith(MANIFEST_SUFFIX):
        return None
    told = listed.get(path.resolve())
    try:
        seen = look(path)
    except OSError as error:
        seen = Look(fault=f"it cannot be read: {error.strerror}")
    name, rank = _from_name(path.stem, seen)
    if told is None:
        kind = seen.kind or _kind_by_folder(path)
        if not kind:
            return None
        return _Found(
            file=CataloguedFile(
                path=path,
                bytes=seen.num_bytes,
                rank=rank if kind == "train" else None,
                fault=seen.fault,
            ),
            kind=kind,
            layout=seen.layout,
            name=name,
            rollout_id=_rollout_id(seen, name),
            manifest=None,
            manifest_path=None,
        )
    entry, manifest, manifest_path = told
    fault = seen.fault
    if not fault and entry.bytes != seen.num_bytes:
        fault = f"it has {seen.num_bytes} bytes, and {entry.bytes} were dumped"
    return _Found(
        file=CataloguedFile(
            path=path,
            bytes=seen.num_bytes,
            rank=entry.rank,
            fault=fault,
            listed=entry,
        ),
        kind=entry.kind,
        layout=seen.layout,
        name=name,
        rollout_id=manifest.rollout_id,
        manifest=manifest,
        manifest_path=manifest_path,
    )


def _missing(
    path: Path, entry: ManifestFile, manifest: Manifest, manifest_path: Path
) -> _Found:
    """A file that a manifest names and that is not there."""
    return _Found(
        file=CataloguedFile(
            path=path,
            bytes=0,
            rank=entry.rank,
            fault="it is missing, and its manifest names it",
            listed=entry,
        ),
        kind=entry.kind,
        layout="unknown",
        name=str(manifest.rollout_id),
        rollout_id=manifest.rollout_id,
        manifest=manifest,
        manifest_path=manifest_path,
    )


def _from_name(stem: str, seen: Look) -> tuple[str, int | None]:
    """What stands for ``{rollout_id}`` and ``{rank}`` in a file's name."""
    if seen.kind != "rollout":
        match = _RANK_NAME.fullmatch(stem)
        if match is not None:
            rank = int(match["rank"]) if seen.rank is None else seen.rank
            return match["name"], rank
    match = _NAME.fullmatch(stem)
    return (stem if match is None else match["name"]), seen.rank


def _kind_by_folder(path: Path) -> str:
    """The kind that the layout of ``--dump-details`` gives a file; '' for none."""
    return {"rollout_data": "rollout", "train_data": "train"}.get(path.parent.name, "")


def _rollout_id(seen: Look, name: str) -> int | None:
    if seen.rollout_id is not None:
        return seen.rollout_id
    digits = name.removeprefix("eval_")
    return int(digits) if digits.isdecimal() else None


def _entries(found: Iterable[_Found]) -> list[DumpEntry]:
    """Puts the files of one step's ranks together."""
    groups: dict[tuple[object, ...], list[_Found]] = {}
    for item in found:
        key: tuple[object, ...] = (item.kind, item.file.path)
        if item.kind == "train":
            key = (item.kind, item.manifest_path, item.file.path.parent, item.name)
        groups.setdefault(key, []).append(item)
    return [_entry(items) for items in groups.values()]


def _entry(items: list[_Found]) -> DumpEntry:
    layouts = [item.layout for item in items if item.layout != "unknown"]
    first = items[0]
    files = sorted(
        (item.file for item in items),
        key=lambda file: (file.rank is None, file.rank or 0, file.path),
    )
    return DumpEntry(
        kind=first.kind,
        name=first.name,
        rollout_id=first.rollout_id,
        files=tuple(files),
        format=layouts[0] if layouts else "unknown",
        manifest=first.manifest,
        manifest_path=first.manifest_path,
    )


def _order(entry: DumpEntry) -> tuple[object, ...]:
    rollout = -1 if entry.rollout_id is None else entry.rollout_id
    evaluation = entry.name.startswith("eval_")
    return rollout, evaluation, entry.kind, str(entry.files[0].path)
