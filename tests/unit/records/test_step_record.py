"""The step record: what is written is what is read; what is not there is None."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.errors import RecordError, RecordMissing, RecordTooNew, RecordTruncated
from relax.records.open import StepRecord, list_rollouts, read_vocabulary
from relax.records.schema import SAMPLES, RecordMetadata, StageFile
from relax.records.write import (
    LiveWriter,
    encode_metadata,
    rollout_folder,
    write_stage,
    write_table,
    write_vocabulary,
)

META = RecordMetadata(
    run_id="r-1",
    attempt=1,
    rollout_id=3,
    weights_version=3,
    absent={"ref_log_probs": "the run has no reference model"},
)


def sample_columns(count, **columns):
    base = {
        "rollout_id": [3] * count,
        "sample_index": list(range(count)),
        "status": ["completed"] * count,
        "prompt_length": [4] * count,
        "response_length": [2] * count,
        "total_length": [6] * count,
        "tokens_kept": [True] * count,
    }
    return {**base, **columns}


def folder_of(tmp_path):
    return rollout_folder(tmp_path, attempt=1, rollout_id=3)


float32s = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(st.one_of(st.none(), st.lists(float32s, max_size=9)), min_size=1))
def test_absent_empty_zero_and_nonfinite_stay_four_things(tmp_path_factory, column):
    tmp_path = tmp_path_factory.mktemp("record")
    rows = sample_columns(len(column), rollout_log_probs=column)
    write_stage(folder_of(tmp_path), StageFile.SAMPLES, rows, META)
    table = StepRecord(tmp_path, 1, 3).table(StageFile.SAMPLES, ["rollout_log_probs"])
    read = table.column(0).to_pylist()
    assert len(read) == len(column)
    for before, after in zip(column, read, strict=True):
        assert (before is None) == (after is None)
        if before is not None:
            pairs = zip(before, after, strict=True)
            assert all(struct.pack("f", a) == struct.pack("f", b) for a, b in pairs)


def test_a_column_left_out_is_absent_and_metadata_come_back(tmp_path):
    write_stage(folder_of(tmp_path), StageFile.SAMPLES, sample_columns(2), META)
    record = StepRecord(tmp_path, 1, 3)
    assert record.table(StageFile.SAMPLES).column("reward").to_pylist() == [None, None]
    assert record.metadata(StageFile.SAMPLES) == META
    assert record.table(StageFile.LOGPROBS) is None
    assert not record.has(StageFile.LOGPROBS)
    with pytest.raises(RecordMissing, match="logprobs stage is not recorded yet"):
        record.metadata(StageFile.LOGPROBS)
    assert list_rollouts(tmp_path) == [(1, 3)]


def test_numpy_arrays_are_stored_bitwise_with_nan(tmp_path):
    values = np.array([-0.0, np.nan, -np.inf, 1e-45], dtype=np.float32)
    rows = sample_columns(1, rollout_log_probs=[values])
    write_stage(folder_of(tmp_path), StageFile.SAMPLES, rows, META)
    column = StepRecord(tmp_path, 1, 3).table(StageFile.SAMPLES)["rollout_log_probs"]
    read = column.chunk(0).flatten().to_numpy()
    assert read.tobytes() == values.tobytes()
    assert column.null_count == 0
    assert math.isnan(read[1])


def test_a_record_is_never_overwritten_and_unknown_columns_are_refused(tmp_path):
    write_stage(folder_of(tmp_path), StageFile.SAMPLES, sample_columns(1), META)
    with pytest.raises(RecordError, match="never overwritten"):
        write_stage(folder_of(tmp_path), StageFile.SAMPLES, sample_columns(1), META)
    with pytest.raises(RecordError, match="not in the record's schema"):
        write_stage(folder_of(tmp_path), StageFile.TRAIN, {"x": [1]}, META)
    with pytest.raises(RecordError, match="differ in length"):
        write_stage(
            folder_of(tmp_path),
            StageFile.LOGPROBS,
            {"rollout_id": [1], "entropy": []},
            META,
        )
    assert [p.name for p in folder_of(tmp_path).iterdir()] == ["samples.arrow"]


def test_batches_hold_at_most_64_samples(tmp_path):
    write_stage(folder_of(tmp_path), StageFile.SAMPLES, sample_columns(130), META)
    path = folder_of(tmp_path) / "samples.arrow"
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    assert sizes == [64, 64, 2]


@pytest.mark.parametrize("keep", [0, 3, 200, -1])
def test_a_damaged_file_is_named(tmp_path, keep):
    path = write_stage(folder_of(tmp_path), StageFile.SAMPLES, sample_columns(2), META)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RecordTruncated, match=r"samples\.arrow"):
        StepRecord(tmp_path, 1, 3).table(StageFile.SAMPLES)


def test_a_newer_schema_is_refused(tmp_path):
    metadata = encode_metadata(META) | {b"relax.schema_version": b"99"}
    table = SAMPLES.empty_table().replace_schema_metadata(metadata)
    folder_of(tmp_path).mkdir(parents=True)
    write_table(folder_of(tmp_path) / "samples.arrow", table)
    with pytest.raises(RecordTooNew, match="schema version 99"):
        StepRecord(tmp_path, 1, 3).table(StageFile.SAMPLES)


def test_the_live_stream_is_readable_at_every_byte(tmp_path):
    record = StepRecord(tmp_path, 1, 3)
    assert record.live_table() is None
    with LiveWriter(folder_of(tmp_path), META) as live:
        live.append(sample_columns(2, response=["a", "b"]))
        assert record.live_table().num_rows == 2
        live.append(sample_columns(1, response=["c"]))
        assert record.live_table()["response"].to_pylist() == ["a", "b", "c"]
    path = folder_of(tmp_path) / "live.arrows"
    whole = path.read_bytes()
    counts = set()
    for size in (*range(0, len(whole), 97), len(whole)):
        path.write_bytes(whole[:size])
        table = record.live_table()
        counts.add(None if table is None else table.num_rows)
    assert counts == {None, 0, 2, 3}
    live.discard()
    assert record.live_table() is None


def test_the_vocabulary_keeps_bytes_that_are_no_text(tmp_path):
    rows = [(0, b"<pad>", True), (1, b"\xe4\xbd", False), (2, "好".encode(), False)]
    name = write_vocabulary(tmp_path, rows, digest="ab" * 32)
    assert name == "vocab-abababababababab.arrow"
    vocabulary = read_vocabulary(tmp_path / name)
    assert vocabulary.text([2, 1, 0, 9]) == ["好", "\\xe4\\xbd", "<pad>", "<9>"]
    assert vocabulary.bytes(1) == b"\xe4\xbd"
    assert vocabulary.special == {0}
    assert len(vocabulary) == 3
    with pytest.raises(RecordMissing):
        read_vocabulary(tmp_path / "vocab-none.arrow")
