"""One step's dump: rollout file, train files, tokenizer, and the manifest last."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relax.dump.manifest import (
    Coverage,
    Manifest,
    ManifestFile,
    MicroBatch,
    WeightsNote,
    encode_manifest,
    read_manifest,
)
from relax.dump.paths import DumpPlaces
from relax.dump.write.disk import disk_errors, hash_file
from relax.dump.write.model_files import ModelFiles
from relax.dump.write.replay_commands import replay_commands
from relax.dump.write.retention import PrunedDump, Retention, prune
from relax.dump.write.rollout import fill_rollout_dump
from relax.dump.write.train import fill_train_dump
from relax.dump.write.transaction import DumpTransaction
from relax.dump.write.written import WrittenFile
from relax.errors import DumpError

COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What every manifest of a run says alike.

    Attributes:
        arguments: `Arguments.to_json`.
        environment: `relax.arguments.environment.recorded_environment`.
        world_size: Ranks that train; 0 when nothing trains.
        layout: Parallel sizes.
        model: Of ``--hf-checkpoint``; None in a run without one.
    """

    run_id: str
    attempt: int
    arguments: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, int] = field(default_factory=dict)
    world_size: int = 0
    model: ModelFiles | None = None


@dataclass(frozen=True, kw_only=True)
class StepToDump:
    """What is to be written of one rollout.

    Attributes:
        samples: As ``Sample.to_dict`` gives them; None when they are not (again)
            written.
        ranks: By global rank: the columns that it trained on.
        missing: ``{"rank 3": reason}`` for what should be here and is lost.
        source: ``live``, ``excursion`` or ``replay``.
    """

    rollout_id: int
    weights: WeightsNote
    samples: Sequence[Mapping[str, Any]] | None = None
    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    micro_batches: tuple[MicroBatch, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    source: str = "live"


@dataclass(frozen=True, kw_only=True)
class DumpedStep:
    """What was written, and what had to go for it.

    Attributes:
        files: Dump files and manifest; not the tokenizer.
        manifest: The manifest's path.
        pruned: Older dumps that the bounds removed.
        notes: What else a person should know, one sentence each.
    """

    files: tuple[WrittenFile, ...]
    manifest: Path
    pruned: tuple[PrunedDump, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


def dump_step(
    folder: Path,
    step: StepToDump,
    *,
    facts: RunFacts,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> DumpedStep:
    """Dumps a step into a folder with the layout of ``--dump-details``.

    See `DumpDirectory.dump`.
    """
    directory = DumpDirectory(
        places=DumpPlaces.under(folder), facts=facts, overwrite=overwrite
    )
    return directory.dump(step, on_progress=on_progress)


@dataclass(frozen=True, kw_only=True)
class DumpDirectory:
    """Where a run's dumps go, and within which bounds.

    Attributes:
        places: Templates of the files.
        facts: What every manifest says alike.
        retention: How many dumps stay.
        overwrite: ``--overwrite-dumps``.
    """

    places: DumpPlaces
    facts: RunFacts
    retention: Retention = field(default_factory=Retention)
    overwrite: bool = False

    def dump(
        self, step: StepToDump, *, on_progress: Callable[[int], None] | None = None
    ) -> DumpedStep:
        """Writes a step's files: all of them, the manifest last, or none.

        A step may be dumped in two parts, the samples first and the ranks when they
        have trained: the second manifest names the files of both.

        Args:
            step: What to write.
            on_progress: Called with the bytes written so far.

        Raises:
            DumpError: A value is not plain, a path is taken by another content, or the
                disk refused; nothing has changed then.
        """
        path = self.places.manifest(step.rollout_id)
        if path is None:
            raise DumpError("it is not said where dumps are to go")
        before = _manifest_before(path)
        with DumpTransaction(
            overwrite=self.overwrite, on_progress=on_progress
        ) as transaction:
            self._copy_tokenizer(transaction)
            files = self._write(transaction, step, beside=path)
            manifest = self._manifest(step, files, path)
            leftover: list[Path] = []
            if before is not None and before.is_same_step(manifest):
                manifest = _joined(before, manifest)
            elif before is not None:
                leftover = self._leftover(before, manifest, path)
            last = transaction.file(path, replaces=True)
            last.write(encode_manifest(manifest))
            transaction.commit()
        notes = tuple(note for place in leftover if (note := _remove(place)))
        pruned = prune(
            path, self.retention, folders=self.places.folders(step.rollout_id)
        )
        written = (*(file.written for file in files), last.finish())
        return DumpedStep(files=written, manifest=path, pruned=pruned, notes=notes)

    def _copy_tokenizer(self, transaction: DumpTransaction) -> None:
        """Copies the tokenizer's files; ones that are there already stay."""
        folder, model = self.places.tokenizer, self.facts.model
        if folder is None or model is None:
            return
        for name, sha256 in model.tokenizer.items():
            place = folder / name
            with disk_errors(place):
                if place.is_file() and hash_file(place) == sha256:
                    continue
            copy = transaction.file(place)
            with disk_errors(copy.path), (model.folder / name).open("rb") as stream:
                while block := stream.read(COPY_BYTES):
                    copy.write(block)

    def _write(
        self, transaction: DumpTransaction, step: StepToDump, *, beside: Path
    ) -> list[_StepFile]:
        files = []
        rollout, train = self.places.rollout, self.places.train
        if step.samples is not None and rollout is not None:
            new = transaction.file(rollout.path(rollout_id=step.rollout_id))
            fill_rollout_dump(new, step.samples, rollout_id=step.rollout_id)
            files.append(_StepFile("rollout", None, new.finish()))
        if train is not None:
            for rank, columns in sorted(step.ranks.items()):
                place = train.path(rollout_id=step.rollout_id, rank=rank)
                new = transaction.file(place)
                fill_train_dump(new, columns, rollout_id=step.rollout_id, rank=rank)
                files.append(_StepFile("train", rank, new.finish()))
        if not files:
            raise DumpError(
                f"there is nothing to dump of rollout {step.rollout_id}",
                where=str(beside.parent),
            )
        return files

    def _manifest(
        self, step: StepToDump, files: Sequence[_StepFile], path: Path
    ) -> Manifest:
        facts = self.facts
        model = facts.model or ModelFiles(folder=Path())
        ranks = tuple(file.rank for file in files if file.rank is not None)
        rollout = self.places.rollout
        replay: dict[str, str] = {}
        if rollout is not None:
            replay = replay_commands(
                facts.arguments,
                rollout_dump=rollout.path(rollout_id=step.rollout_id),
                weights=step.weights,
            )
        has_samples = any(file.kind == "rollout" for file in files)
        return Manifest(
            run_id=facts.run_id,
            attempt=facts.attempt,
            rollout_id=step.rollout_id,
            written_at=time.time(),
            weights=step.weights,
            coverage=Coverage(
                samples=len(step.samples or ()) if has_samples else None,
                ranks=ranks,
                world_size=facts.world_size,
                missing=step.missing,
            ),
            files=tuple(file.entry(path.parent) for file in files),
            source=step.source,
            arguments=facts.arguments,
            environment=facts.environment,
            versions=facts.versions,
            git=facts.git,
            tokenizer_sha256=model.tokenizer_sha256,
            chat_template_sha256=model.chat_template_sha256,
            model_config_sha256=model.model_config_sha256,
            layout=facts.layout,
            micro_batches=step.micro_batches,
            replay=replay,
        )

    def _leftover(self, before: Manifest, new: Manifest, path: Path) -> list[Path]:
        """Files of another run's dump that the new one would stand beside.

        Raises:
            DumpError: There are such, and they may not be replaced.
        """
        mine = {file.path for file in new.files}
        allowed = self.places.folders(new.rollout_id)
        others = [path.parent / f.path for f in before.files if f.path not in mine]
        others = [place for place in others if place.parent.resolve() in allowed]
        if others and not self.overwrite:
            raise DumpError(
                f"the dump of run {before.run_id}, attempt {before.attempt}, is there"
                " already",
                where=str(path),
                hint="dump elsewhere, or replace it by --overwrite-dumps",
            )
        return others


@dataclass(frozen=True, slots=True)
class _StepFile:
    kind: str
    rank: int | None
    written: WrittenFile

    def entry(self, folder: Path) -> ManifestFile:
        return ManifestFile(
            kind=self.kind,
            path=os.path.relpath(self.written.path, folder),
            bytes=self.written.bytes,
            sha256=self.written.sha256,
            rank=self.rank,
        )


def _remove(place: Path) -> str:
    """Removes a replaced dump's file; a sentence when it stays."""
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        return f"{place} of the replaced dump is still there: {error.strerror}"
    return ""


def _manifest_before(path: Path) -> Manifest | None:
    """The manifest that has this name now; one that cannot be read counts as none."""
    try:
        return read_manifest(path)
    except DumpError:
        return None


def _joined(before: Manifest, new: Manifest) -> Manifest:
    """The manifest of a step that was dumped in two parts."""
    mine = {file.path for file in new.files}
    files = (*(file for file in before.files if file.path not in mine), *new.files)
    ranks = {file.rank for file in files if file.rank is not None}
    samples = new.coverage.samples
    return dataclasses.replace(
        new,
        files=files,
        coverage=dataclasses.replace(
            new.coverage,
            samples=before.coverage.samples if samples is None else samples,
            ranks=tuple(sorted(ranks)),
        ),
        micro_batches=new.micro_batches or before.micro_batches,
    )
