"""A stage file written batch by batch, while its length is not known yet.

What a file says of itself (coverage, absent columns) is known when its last row is.
Batches go to a spool first, and from there, unread, into the stage file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from relax.records.atomic import replace_atomically
from relax.records.schema import BATCH_SAMPLES, SCHEMAS, RecordMetadata, StageFile
from relax.records.write import encode_metadata


class StageSpool:
    """Rows of one stage, kept on disk until `finish` gives them their file.

    Args:
        folder: The step record's folder, which must exist.
        stage: Which stage's file.

    Attributes:
        num_rows: Rows so far.
        filled: Columns in which some row has a value.
    """

    def __init__(self, folder: Path, stage: StageFile) -> None:
        self.num_rows = 0
        self.filled: set[str] = set()
        self._path = folder / f"{stage}.arrow"
        self._spool = folder / f".{stage}.spool"
        self._schema = SCHEMAS[stage]
        self._rows: list[Mapping[str, Any]] = []
        self._sink = pa.OSFile(str(self._spool), "wb")
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; columns that it lacks are null."""
        self._rows.append(row)
        self.num_rows += 1
        if len(self._rows) == BATCH_SAMPLES:
            self._flush()

    def finish(self, metadata: RecordMetadata) -> Path:
        """Writes the stage file; it appears whole, by rename.

        Args:
            metadata: What the file says of itself.
        """
        self._flush()
        self._close()
        schema = self._schema.with_metadata(encode_metadata(metadata))

        def write(stream: Any) -> None:
            with pa.ipc.new_file(stream, schema) as writer:
                for batch in _batches(self._spool):
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))

        replace_atomically(self._path, write)
        self.discard()
        return self._path

    def discard(self) -> None:
        """Removes the spool."""
        self._close()
        self._spool.unlink(missing_ok=True)

    def _close(self) -> None:
        if not self._sink.closed:
            self._writer.close()
            self._sink.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        arrays = []
        for spec in self._schema:
            column = [row.get(spec.name) for row in self._rows]
            if any(value is not None for value in column):
                self.filled.add(spec.name)
            arrays.append(_array(column, spec.type))
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows = []


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with (
        contextlib.closing(pa.OSFile(str(path), "rb")) as source,
        pa.ipc.open_stream(source) as reader,
    ):
        yield from reader


def _array(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind) or pa.types.is_string(kind.value_type):
        return pa.array(column, kind)
    # One buffer for all rows of the batch; a row without values has no offset.
    present = [value for value in column if value is not None]
    sizes = np.array([0 if v is None else v.size for v in column], np.int64)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    offsets = pa.array(
        ends.astype(np.int32), mask=np.array([*(v is None for v in column), False])
    )
    flat = np.concatenate(present) if present else np.empty(0, np.float32)
    return pa.ListArray.from_arrays(offsets, pa.array(flat, kind.value_type), type=kind)
