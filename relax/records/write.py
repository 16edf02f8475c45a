"""Writing the step record: stage files by rename, and the live stream."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from relax.errors import RecordError
from relax.records.atomic import replace_atomically
from relax.records.schema import (
    BATCH_SAMPLES,
    SAMPLES,
    SCHEMA_VERSION,
    SCHEMAS,
    VOCAB,
    RecordMetadata,
    StageFile,
)

LIVE_FILE = "live.arrows"
_MOST_ELEMENTS = 2**31 - 1


def rollout_folder(run_dir: Path, *, attempt: int, rollout_id: int | str) -> Path:
    """The folder of a step record: ``steps/a01/000037`` (or ``steps/a01/x1.0``)."""
    name = f"{rollout_id:06d}" if isinstance(rollout_id, int) else rollout_id
    return run_dir / "steps" / f"a{attempt:02d}" / name


def encode_metadata(metadata: RecordMetadata) -> dict[bytes, bytes]:
    """Metadata as Arrow schema metadata: ``relax.<field>`` → JSON."""
    fields = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(metadata)}
    return {
        f"relax.{name}".encode(): json.dumps(value).encode()
        for name, value in fields.items()
    }


def _table(
    rows: Mapping[str, Sequence[Any]], *, schema: pa.Schema, metadata: RecordMetadata
) -> pa.Table:
    unknown = rows.keys() - set(schema.names)
    if unknown:
        raise RecordError(f"columns {sorted(unknown)} are not in the record's schema")
    counts = {len(values) for values in rows.values()}
    if len(counts) != 1:
        raise RecordError("the columns of a record differ in length")
    (count,) = counts
    arrays = [
        _column(rows[spec.name], spec.type)
        if spec.name in rows
        else pa.nulls(count, spec.type)
        for spec in schema
    ]
    return pa.Table.from_arrays(
        arrays, schema=schema.with_metadata(encode_metadata(metadata))
    )


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """One column; per-token arrays are laid end to end instead of walked through."""
    if not (
        pa.types.is_list(kind)
        and values
        and all(isinstance(value, np.ndarray) and value.ndim == 1 for value in values)
    ):
        return pa.array(values, type=kind, from_pandas=False)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([value.size for value in values], out=offsets[1:])
    if offsets[-1] > _MOST_ELEMENTS:
        return pa.array(values, type=kind, from_pandas=False)
    elements = pa.array(np.concatenate(values), type=kind.value_type, from_pandas=False)
    return pa.ListArray.from_arrays(offsets.astype(np.int32), elements, type=kind)


def write_stage(
    folder: Path,
    stage_file: StageFile,
    rows: Mapping[str, Sequence[Any]],
    metadata: RecordMetadata,
) -> Path:
    """Writes one stage file of a step record; it appears whole, by rename.

    Args:
        folder: From `rollout_folder`; made when missing.
        stage_file: Which stage's file.
        rows: Columns by name, all of one length; a column left out is absent (null).
        metadata: What the file says of itself.

    Returns:
        The file's path.

    Raises:
        RecordError: Columns do not fit the schema, or the record is there already:
            nothing ever overwrites a record.
        OSError: The disk refused; nothing half written is left.
    """
    path, table = prepare_stage(folder, stage_file, rows, metadata)
    write_table(path, table)
    return path


def prepare_stage(
    folder: Path,
    stage_file: StageFile,
    rows: Mapping[str, Sequence[Any]],
    metadata: RecordMetadata,
) -> tuple[Path, pa.Table]:
    """What `write_stage` would write, and where: all of it that can be refused.

    `write_table` then only needs the disk, which is slow and may be left to a thread.

    Args:
        folder: As for `write_stage`.
        stage_file: Likewise.
        rows: Likewise.
        metadata: Likewise.

    Raises:
        RecordError: As for `write_stage`.
    """
    path = folder / f"{stage_file}.arrow"
    if path.exists():
        raise RecordError(
            "this stage of the rollout is recorded already, and records are never "
            "overwritten",
            where=str(path),
        )
    return path, _table(rows, schema=SCHEMAS[stage_file], metadata=metadata)


def write_table(path: Path, table: pa.Table) -> None:
    """Writes an Arrow IPC file by rename, in batches of at most 64 rows.

    Raises:
        OSError: The disk refused; nothing half written is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(stream: Any) -> None:
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH_SAMPLES)

    replace_atomically(path, write)


class LiveWriter:
    """``live.arrows``: finished samples of a rollout that is still generating.

    An IPC *stream*: a reader sees whole batches and waits at a torn end. The file is
    removed when `samples.arrow` takes its place.
    """

    def __init__(self, folder: Path, metadata: RecordMetadata) -> None:
        self._path = folder / LIVE_FILE
        self._metadata = metadata
        self._sink: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        """Opens the stream."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        schema = SAMPLES.with_metadata(encode_metadata(self._metadata))
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, schema)
        return self

    def append(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Appends samples (columns of `samples.arrow`) as one batch.

        Raises:
            RecordError: The stream is not open, or the columns do not fit.
        """
        if self._writer is None or self._sink is None:
            raise RecordError("the live stream is not open", where=str(self._path))
        table = _table(rows, schema=SAMPLES, metadata=self._metadata)
        self._writer.write_table(table)
        self._sink.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the stream; the file stays until `discard`."""
        if self._writer is not None:
            self._writer.close()
        if self._sink is not None:
            self._sink.close()
        self._writer = self._sink = None

    def discard(self) -> None:
        """Removes the stream's file once the stage file is there."""
        self._path.unlink(missing_ok=True)


def write_vocabulary(
    run_dir: Path, rows: Sequence[tuple[int, bytes, bool]], *, digest: str
) -> str:
    """Writes ``vocab-<hash>.arrow`` once per tokenizer.

    Args:
        run_dir: The run folder.
        rows: ``(id, bytes, special)`` of every token.
        digest: Hash of the vocabulary; its first 16 digits name the file.

    Returns:
        The file's name, which records carry.
    """
    name = f"vocab-{digest[:16]}.arrow"
    path = run_dir / name
    if not path.exists():
        ids, texts, special = zip(*rows, strict=True) if rows else ((), (), ())
        write_table(
            path,
            pa.Table.from_arrays(
                [
                    pa.array(ids, VOCAB.field("id").type),
                    pa.array(texts, VOCAB.field("bytes").type),
                    pa.array(special, VOCAB.field("special").type),
                ],
                schema=VOCAB,
            ),
        )
    return name
