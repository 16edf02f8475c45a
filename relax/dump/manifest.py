"""The manifest of a dump: what ran, on what, and how to run it again.

Written last, as ``<rollout dump stem>.manifest.json`` beside the rollout dump: files
with a manifest are whole. It is JSON; names that a reader does not know are left alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relax.arguments.environment import redactor
from relax.arguments.redaction import Redactor
from relax.errors import DumpError, DumpMissing, DumpTooNew, DumpTruncated
from relax.records.atomic import write_atomically

MANIFEST_VERSION: Final = 1
MOST_BYTES: Final = 64 * 1024 * 1024
NOT_KEPT: Final = "not kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One file of the dump.

    Attributes:
        kind: ``rollout`` or ``train``.
        path: Relative to the manifest's folder.
        bytes: Size.
        sha256: Hash over its bytes, in hexadecimal.
        rank: Global rank of a train file, else None.
    """

    kind: str
    path: str
    bytes: int
    sha256: str
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsNote:
    """The weights that the step ran on.

    Attributes:
        version: Optimizer steps since the start.
        fingerprint: Over names, dtypes, shapes and bytes; '' when it was not taken.
        folder: The folder that holds them, or ``not kept``.
    """

    version: int
    fingerprint: str = ""
    folder: str = NOT_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch as it was trained.

    Attributes:
        step_id: Train step within the rollout.
        rank: Global rank.
        number: Its number within the step, on that rank.
        padded_length: Tokens of each row, padding included.
        samples: ``sample_index`` of each row, in order.
    """

    step_id: int
    rank: int
    number: int
    padded_length: int
    samples: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the step is here.

    Attributes:
        samples: Samples in the rollout dump; None when there is no rollout dump.
        ranks: Ranks that have a train file.
        world_size: Ranks that trained; 0 when nothing was trained.
        missing: ``{"rank 3": reason}`` for what is not here although it should be.
    """

    samples: int | None = None
    ranks: tuple[int, ...] = ()
    world_size: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = []
        if self.samples is not None:
            parts.append(f"{self.samples} samples")
        if self.world_size:
            parts.append(f"{len(self.ranks)} of {self.world_size} ranks")
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a dump says of itself.

    Attributes:
        run_id: The run, and which attempt of it.
        rollout_id: The rollout.
        written_at: Wall time, seconds since 1970.
        weights: What the step ran on.
        coverage: How much of the step is here.
        files: All files of the dump.
        source: ``live``, ``excursion`` or ``replay``.
        arguments: As `Arguments.to_json` gives them, without secrets.
        environment: Variables of the allow-list, without secrets.
        versions: Of packages.
        git: ``{"commit": …, "dirty": …}``; empty outside a checkout.
        tokenizer_sha256: Over the tokenizer's files; '' without one.
        chat_template_sha256: '' without one.
        model_config_sha256: Over ``config.json``; '' without one.
        layout: Parallel sizes, e.g. ``{"tp": 1, "pp": 1, "dp": 1}``.
        micro_batches: As trained, in order.
        replay: By kind (``train-only``, ``forge``): the command line that replays it.
    """

    run_id: str
    attempt: int
    rollout_id: int
    written_at: float
    weights: WeightsNote
    coverage: Coverage
    files: tuple[ManifestFile, ...]
    source: str = "live"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_sha256: str = ""
    chat_template_sha256: str = ""
    model_config_sha256: str = ""
    layout: Mapping[str, int] = field(default_factory=dict)
    micro_batches: tuple[MicroBatch, ...] = ()
    replay: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = MANIFEST_VERSION

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    def is_same_step(self, other: Manifest) -> bool:
        """Whether both are of the same rollout of the same attempt of the same run."""
        return _step(self) == _step(other)


def _step(manifest: Manifest) -> tuple[str, int, int, str]:
    return manifest.run_id, manifest.attempt, manifest.rollout_id, manifest.source


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest as JSON; secrets that a caller overlooked are removed."""
    document = dataclasses.asdict(manifest)
    redact = redactor()
    document["arguments"] = {
        name: _redacted(redact, name, entry)
        for name, entry in manifest.arguments.items()
    }
    document["environment"] = {
        name: redact.value(name, value) for name, value in manifest.environment.items()
    }
    document["replay"] = {
        name: redact.text(line) for name, line in manifest.replay.items()
    }
    text = json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _redacted(redact: Redactor, name: str, entry: Any) -> Any:
    """An argument's entry (``value``, ``origin``) with the secret in it removed."""
    if not isinstance(entry, Mapping) or "value" not in entry:
        return redact.value(name, entry)
    return {**entry, "value": redact.value(name, entry["value"])}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Writes a manifest by temporary name, fsync and rename.

    Raises:
        DumpError: The disk refused.
    """
    try:
        write_atomically(path, encode_manifest(manifest))
    except OSError as error:
        raise DumpError(
            f"the manifest was not written: {error.strerror}", where=str(path)
        ) from error


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest.

    Raises:
        DumpMissing: There is none.
        DumpTruncated: It ends too early, or is no JSON.
        DumpTooNew: A newer version wrote it.
        DumpError: It is not a manifest, or cannot be read.
    """
    document = _read_json(path)
    if not isinstance(document, dict) or "schema_version" not in document:
        raise DumpError("this is not a manifest of relax", where=str(path))
    version = document["schema_version"]
    if not isinstance(version, int) or version > MANIFEST_VERSION:
        raise DumpTooNew(
            f"the manifest has version {version}, and this relax reads up to"
            f" {MANIFEST_VERSION}",
            where=str(path),
            hint="open it with the relax that wrote it",
        )
    try:
        return _decoded(document)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DumpError(
            f"the manifest does not have its form: {error}", where=str(path)
        ) from error


def _read_json(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MOST_BYTES:
                raise DumpError(f"{size} bytes are no manifest", where=str(path))
            content = stream.read(MOST_BYTES)
    except FileNotFoundError as error:
        raise DumpMissing("there is no such manifest", where=str(path)) from error
    except OSError as error:
        raise DumpError(
            f"the manifest cannot be read: {error.strerror}", where=str(path)
        ) from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DumpTruncated(
            f"the manifest is not whole: {error}",
            where=str(path),
            hint="its files may be whole all the same; verify them another way",
        ) from error


def _decoded(document: dict[str, Any]) -> Manifest:
    known = {item.name for item in dataclasses.fields(Manifest)}
    values = {name: value for name, value in document.items() if name in known}
    values["weights"] = _built(WeightsNote, document["weights"])
    coverage = _built(Coverage, document["coverage"])
    values["coverage"] = dataclasses.replace(coverage, ranks=tuple(coverage.ranks))
    values["files"] = tuple(_file(row) for row in document["files"])
    values["micro_batches"] = tuple(
        dataclasses.replace(batch, samples=tuple(batch.samples))
        for batch in (
            _built(MicroBatch, row) for row in document.get("micro_batches", ())
        )
    )
    for name in ("arguments", "environment", "versions", "git", "layout", "replay"):
        if not isinstance(document.get(name, {}), dict):
            raise TypeError(f"{name} is no object")
    values["written_at"] = float(document["written_at"])
    values["rollout_id"] = int(document["rollout_id"])
    values["run_id"] = str(document["run_id"])
    return Manifest(**values)


def _file(row: Any) -> ManifestFile:
    file: ManifestFile = _built(ManifestFile, row)
    if not (isinstance(file.path, str) and isinstance(file.sha256, str)):
        raise TypeError("a file's path and sha256 are texts")
    if not isinstance(file.bytes, int) or file.bytes < 0 or "\0" in file.path:
        raise ValueError("a file's size or path is not possible")
    return file


def _built(kind: Any, row: Any) -> Any:
    known = {item.name for item in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in row.items() if name in known})
