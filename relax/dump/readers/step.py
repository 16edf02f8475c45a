"""The files of one step → its record: samples.arrow, logprobs.arrow, train.arrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from relax.dump.decode.archive import Archive
from relax.dump.decode.content import Content, read_content
from relax.dump.decode.separate import NotSeparable
from relax.dump.decode.unpickle import pickle_errors
from relax.dump.manifest import Manifest
from relax.dump.readers import values
from relax.dump.readers.join import JoinedStep, Layout, StepJoin
from relax.dump.readers.match import match_rows
from relax.dump.readers.notes import Notes
from relax.dump.readers.recognise import Recognised, recognise, rollout_source
from relax.dump.readers.record import StageSpool
from relax.dump.readers.rollout import RolloutReader, Row
from relax.dump.readers.stages import Rows, record_metadata, write_stages
from relax.dump.readers.train import TrainSample, read_train_file, sample_digest
from relax.dump.readers.trained import sample_indices, sample_row
from relax.dump.readers.vocabulary import TokenTexts
from relax.errors import DumpError
from relax.records.schema import StageFile

VOCABULARY: Final = "vocab-dump.arrow"

_OF_A_RANK: Final = re.compile(r"\d+_\d+")
_FIRST_NUMBER: Final = re.compile(r"\d+")

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class DecodedStep:
    """What came out of the files.

    Attributes:
        kind: ``rollout`` when a rollout dump is among them, else ``train``.
        source: The formats' names.
        rollout_id: The rollout.
        num_samples: Rows.
        stages: Names of the stage files written.
        coverage: Which ranks and samples are there.
        notes: What is malformed, missing or different between ranks.
    """

    kind: Literal["rollout", "train"]
    source: str
    rollout_id: int
    num_samples: int
    stages: tuple[str, ...]
    coverage: Mapping[str, object]
    notes: tuple[str, ...]


class StepReader:
    """Reads the files of one step.

    Args:
        paths: One rollout dump at most, and any number of ranks' train dumps.
        into: An empty folder, which takes the record.
        reward_key: Key of the number where rewards are dicts.
        manifest: That of the dump, when it has one.
        progress: Told how many bytes of all files were read, and how many samples.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        into: Path,
        reward_key: str | None,
        manifest: Manifest | None,
        progress: Callable[[int, int], None],
    ) -> None:
        # A rollout dump comes last: its rows are joined to what was trained.
        self._paths = sorted(
            paths, key=lambda p: (not _OF_A_RANK.fullmatch(p.stem), p.name)
        )
        self._into = into
        self._reward_key = reward_key
        self._manifest = manifest
        self._progress = progress
        self._done = 0
        self._num_samples = 0
        self._notes = Notes()
        self._texts = TokenTexts()
        self._sources: set[str] = set()
        self._rollout_ids: dict[int, Path] = {}
        self._join = StepJoin(notes=self._notes, layout=_layout(manifest))
        self._has_train = False

    def read(self) -> DecodedStep:
        """Reads all files and writes the record.

        Raises:
            DumpTruncated: A file ends early.
            DumpRefused: A file wants something that is no data.
            DumpError: The files are no dumps, or not of one step.
        """
        rows: Rows | None = None
        postponed: list[Path] = []
        for path in self._paths:
            is_last = path == self._paths[-1]
            found = self._with_content(path, self._take(path, read_rollout=is_last))
            if isinstance(found, Rows):
                rows = found
            elif found is not None:
                postponed.append(path)
        if len(postponed) + (rows is not None) > 1:
            raise DumpError(
                "several rollout dumps were given", hint="choose the file of one step"
            )
        for path in postponed:
            rows = self._with_content(path, self._rollout_rows(path))
        step = self._join.join() if self._has_train else None
        kind: Literal["rollout", "train"] = "train" if rows is None else "rollout"
        if rows is None:
            rows = self._train_rows(step)
        try:
            return self._finish(kind, rows, step)
        finally:
            rows.spool.discard()

    def _with_content(
        self, path: Path, use: Callable[[Archive, Content, Recognised], Found]
    ) -> Found:
        """Opens a file and uses its content; twice if it can not be read in parts."""

        def advance(num_bytes: int) -> None:
            self._progress(self._done + num_bytes, self._num_samples)

        self._notes.file = path.name if len(self._paths) > 1 else ""
        notes, rollout_ids = self._notes.copy(), dict(self._rollout_ids)
        for separate in (True, False):
            with Archive(path) as archive:
                where = str(path)
                try:
                    with pickle_errors(where):
                        content = read_content(
                            archive, advance=advance, separate=separate
                        )
                        found = recognise(
                            {**content.keys, **content.tail},
                            has_samples=content.samples is not None,
                            where=where,
                        )
                        result = use(archive, content, found)
                except NotSeparable:
                    self._notes.restore(notes)
                    self._rollout_ids = rollout_ids
                    continue
                self._done += archive.size
                for name in archive.damaged:
                    self._notes.add(
                        f"the checksum of {name} in {path.name} is not that of its "
                        "bytes: values may be wrong"
                    )
                return result
        raise DumpError("cannot be read", where=str(path))

    def _take(
        self, path: Path, *, read_rollout: bool
    ) -> Callable[[Archive, Content, Recognised], Rows | Path | None]:
        def take(
            archive: Archive, content: Content, found: Recognised
        ) -> Rows | Path | None:
            if found.kind == "rollout" and not read_rollout:
                return path
            if found.kind == "rollout":
                return self._rollout_rows(path)(archive, content, found)
            self._sources.add(found.source)
            if found.rank is None:
                raise DumpError("does not say which rank wrote it", where=str(path))
            self._same_rollout(found, path)
            file = read_train_file(content, rank=found.rank, notes=self._notes)
            for sample in file.samples:
                self._texts.add(sample.tokens, sample.decoded)
            self._join.add(file)
            self._has_train = True
            return None

        return take

    def _rollout_rows(
        self, path: Path
    ) -> Callable[[Archive, Content, Recognised], Rows]:
        def read(_: Archive, content: Content, found: Recognised) -> Rows:
            rollout_id = self._same_rollout(found, path)
            reader = RolloutReader(
                rollout_id=rollout_id, reward_key=self._reward_key, notes=self._notes
            )
            rows = Rows(spool=StageSpool(self._into, StageFile.SAMPLES), keys=[])
            source = found.source
            try:
                for position, sample in enumerate(content.samples or ()):
                    self._num_samples = position
                    row, fields = reader.row(sample, position)
                    if position == 0 and source == "rollout":
                        source = rollout_source(fields)
                    self._texts.add(row["tokens"], fields.get("decoded_tokens"))
                    rows.keys.append((row["sample_index"], _row_digest(row)))
                    rows.spool.append(row)
                if "rank" in content.tail or "rollout_id" in content.tail:
                    # Known only now what the file is: everything from the start.
                    raise NotSeparable
            except BaseException:
                rows.spool.discard()
                raise
            self._sources.add(source)
            return rows

        return read

    def _same_rollout(self, found: Recognised, path: Path) -> int:
        """The file's rollout, which must be that of the other files."""
        rollout_id = found.rollout_id
        if rollout_id is None:
            named = _FIRST_NUMBER.search(path.stem)
            rollout_id = int(named[0][:9]) if named else 0
            self._notes.add(
                f"{path.name} does not say its rollout; {rollout_id} is taken"
            )
        self._rollout_ids.setdefault(rollout_id, path)
        if len(self._rollout_ids) > 1:
            ids = ", ".join(f"{i} ({p.name})" for i, p in self._rollout_ids.items())
            raise DumpError(
                f"the files are of different rollouts: {ids}",
                hint="choose the files of one step",
            )
        return rollout_id

    def _train_rows(self, step: JoinedStep | None) -> Rows:
        samples = step.samples if step else []
        indices = sample_indices(samples)
        if indices is None:
            self._notes.add(
                "samples have no number of the whole run; they are numbered in the "
                "order of the ranks"
            )
            indices = list(range(len(samples)))
        rows = Rows(spool=StageSpool(self._into, StageFile.SAMPLES), keys=[])
        (rollout_id,) = self._rollout_ids
        for sample, index in zip(samples, indices, strict=True):
            rows.spool.append(
                sample_row(sample, rollout_id=rollout_id, sample_index=index)
            )
            rows.keys.append((index, sample.digest))
        return rows

    def _finish(
        self, kind: Literal["rollout", "train"], rows: Rows, step: JoinedStep | None
    ) -> DecodedStep:
        (rollout_id,) = self._rollout_ids
        coverage: dict[str, object] = {"samples": rows.spool.num_rows}
        trained: list[TrainSample | None] = []
        if step is not None:
            trained = match_rows(rows.keys, step.samples, notes=self._notes)
            coverage |= {**step.coverage, "not_trained": trained.count(None)}
        if self._manifest is not None:
            coverage["of"] = self._manifest.coverage.world_size
        source = ", ".join(sorted(self._sources))
        metadata = record_metadata(
            rollout_id=rollout_id,
            source=source,
            coverage=coverage,
            vocab=self._texts.write(self._into, name=VOCABULARY),
            manifest=self._manifest,
        )
        stages = write_stages(
            self._into,
            rows,
            step=step,
            trained=trained,
            metadata=metadata,
            manifest=self._manifest,
        )
        return DecodedStep(
            kind=kind,
            source=source,
            rollout_id=rollout_id,
            num_samples=rows.spool.num_rows,
            stages=tuple(map(str, stages)),
            coverage=coverage,
            notes=self._notes.lines(),
        )


def _row_digest(row: Row) -> bytes:
    tokens: values.Ints | None = row["tokens"]
    return sample_digest(tokens, row["total_length"], row["response_length"])


def _layout(manifest: Manifest | None) -> Layout | None:
    if manifest is None or "cp" not in manifest.layout:
        return None
    return Layout(cp=manifest.layout["cp"], tp=manifest.layout.get("tp", 1))
