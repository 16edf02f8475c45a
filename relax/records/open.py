"""Reading the step record; files that are not there yet are None, not an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa

from relax.errors import RecordError, RecordMissing, RecordTooNew, RecordTruncated
from relax.records.schema import SCHEMA_VERSION, RecordMetadata, StageFile
from relax.records.write import LIVE_FILE, rollout_folder

_ATTEMPT = re.compile(r"a(\d+)")
_ROLLOUT = re.compile(r"\d{6,}")


class StepRecord:
    """The record of one rollout.

    Args:
        run_dir: The run folder.
        attempt: From 1.
        rollout_id: The rollout, or an excursion's name such as ``x1.0``.
    """

    def __init__(self, run_dir: Path, attempt: int, rollout_id: int | str) -> None:
        self.folder = rollout_folder(run_dir, attempt=attempt, rollout_id=rollout_id)
        self.attempt = attempt
        self.rollout_id = rollout_id

    @classmethod
    def at(cls, folder: Path, *, rollout_id: int | str) -> Self:
        """A record that lies outside a run folder, such as a decoded dump.

        Args:
            folder: Holds the stage files.
            rollout_id: The rollout.
        """
        record = cls(folder, 0, rollout_id)
        record.folder = folder
        return record

    def path(self, stage_file: StageFile) -> Path:
        """Where a stage's file is, or will be."""
        return self.folder / f"{stage_file}.arrow"

    def has(self, stage_file: StageFile) -> bool:
        """Whether the stage is recorded."""
        return self.path(stage_file).exists()

    def table(
        self, stage_file: StageFile, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """A stage's rows.

        Args:
            stage_file: Which stage's file.
            columns: Only these columns; None for all.

        Returns:
            The table, or None when the stage is not recorded yet.

        Raises:
            RecordTruncated: The file is damaged.
            RecordTooNew: A newer schema wrote it.
        """
        path = self.path(stage_file)
        try:
            # read(), not a memory map: a mapped file that is pruned on NFS kills us.
            with pa.OSFile(str(path)) as source, _open_file(source, path) as reader:
                _decode_metadata(reader.schema, path)
                table = reader.read_all()
        except FileNotFoundError:
            return None
        except (pa.ArrowInvalid, OSError) as error:
            raise _truncated(path, error) from error
        return table if columns is None else table.select(list(columns))

    def metadata(self, stage_file: StageFile) -> RecordMetadata:
        """What a stage's file says of itself.

        Raises:
            RecordMissing: The stage is not recorded.
            RecordTruncated: The file is damaged.
            RecordTooNew: A newer schema wrote it.
        """
        path = self.path(stage_file)
        try:
            with pa.OSFile(str(path)) as source, _open_file(source, path) as reader:
                return _decode_metadata(reader.schema, path)
        except FileNotFoundError as error:
            raise RecordMissing(
                f"the {stage_file} stage is not recorded yet", where=str(path)
            ) from error

    def live_table(self) -> pa.Table | None:
        """Samples finished so far while the rollout is generating; None if no stream.

        A torn batch at the end is left for the next read.
        """
        path = self.folder / LIVE_FILE
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        batches: list[pa.RecordBatch] = []
        try:
            with pa.ipc.open_stream(content) as reader:
                schema = reader.schema
                try:
                    while True:
                        batches.append(reader.read_next_batch())
                except (StopIteration, pa.ArrowInvalid, OSError):
                    # Its writer is in the middle of a batch, or was killed there.
                    pass
        except (pa.ArrowInvalid, OSError):
            return None
        return pa.Table.from_batches(batches, schema=schema)


def _open_file(source: pa.NativeFile, path: Path) -> pa.ipc.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise _truncated(path, error) from error


def _truncated(path: Path, error: Exception) -> RecordTruncated:
    return RecordTruncated(
        f"not a whole Arrow file ({error})",
        where=str(path),
        hint="it was damaged after it was written: stage files appear whole, by rename",
    )


def _decode_metadata(schema: pa.Schema, path: Path) -> RecordMetadata:
    prefix = b"relax."
    try:
        fields = {
            key[len(prefix) :].decode(): json.loads(value)
            for key, value in (schema.metadata or {}).items()
            if key.startswith(prefix)
        }
        version = fields.pop("schema_version")
        if version > SCHEMA_VERSION:
            raise RecordTooNew(
                f"the record has schema version {version}, this version reads up to "
                f"{SCHEMA_VERSION}",
                where=str(path),
                hint="open it with the relax-tui that wrote it, or a newer one",
            )
        known = RecordMetadata.__dataclass_fields__
        return RecordMetadata(**{key: fields[key] for key in fields if key in known})
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"the file does not say which run it belongs to ({error})", where=str(path)
        ) from error


def list_rollouts(run_dir: Path) -> list[tuple[int, int]]:
    """``(attempt, rollout_id)`` of every recorded rollout, in order."""
    found: list[tuple[int, int]] = []
    steps = run_dir / "steps"
    for folder in _folders(steps):
        match = _ATTEMPT.fullmatch(folder.name)
        if match:
            found.extend(
                (int(match[1]), int(rollout.name))
                for rollout in _folders(folder)
                if _ROLLOUT.fullmatch(rollout.name)
            )
    return sorted(found)


def _folders(folder: Path) -> Iterable[Path]:
    return (
        [item for item in folder.iterdir() if item.is_dir()] if folder.exists() else []
    )


class Vocabulary:
    """Bytes of each token id, from a run's vocabulary file.

    Args:
        tokens: Bytes by id.
        special: Ids of special tokens.
    """

    def __init__(self, tokens: dict[int, bytes], special: frozenset[int]) -> None:
        self._tokens = tokens
        self.special = special

    def __len__(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    def bytes(self, token_id: int) -> bytes | None:
        """The token's bytes; None when the id is not in the vocabulary."""
        return self._tokens.get(token_id)

    def text(self, ids: Iterable[int]) -> list[str]:
        r"""One text a token; bytes that are no UTF-8 on their own show as ``\xNN``."""
        return [self._text(token_id) for token_id in ids]

    def _text(self, token_id: int) -> str:
        content = self._tokens.get(token_id)
        if content is None:
            return f"<{token_id}>"
        return content.decode("utf-8", "backslashreplace")


def read_vocabulary(path: Path) -> Vocabulary:
    """Reads a vocabulary file.

    Raises:
        RecordMissing: There is none.
        RecordTruncated: It is damaged.
    """
    try:
        with pa.OSFile(str(path)) as source, _open_file(source, path) as reader:
            table = reader.read_all()
    except FileNotFoundError as error:
        raise RecordMissing(
            "the vocabulary file is missing", where=str(path)
        ) from error
    ids = table.column("id").to_pylist()
    flags = table.column("special").to_pylist()
    return Vocabulary(
        dict(zip(ids, table.column("bytes").to_pylist(), strict=True)),
        frozenset(i for i, special in zip(ids, flags, strict=True) if special),
    )
