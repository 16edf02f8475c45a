"""The step record: names, types and alignment of its columns (see FORMAT.md).

A rollout is a folder of immutable Arrow IPC files, one a stage, joined by row order and
``sample_index``. Per-token columns are aligned to the response: position j is
``tokens[T-R+j]``, T the total length, R ``response_length``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

SCHEMA_VERSION = 1
BATCH_SAMPLES = 64


class StageFile(StrEnum):
    """The files of a step record."""

    SAMPLES = "samples"
    LOGPROBS = "logprobs"
    TRAIN = "train"


_FLOATS = pa.list_(pa.float32())

SAMPLES = pa.schema(
    [
        pa.field("rollout_id", pa.int64(), nullable=False),
        pa.field("sample_index", pa.int64(), nullable=False),
        pa.field("group_index", pa.int64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("stop_reason", pa.string()),
        pa.field("failure", pa.string()),
        pa.field("reward", pa.float64()),
        pa.field("label", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("response", pa.string()),
        pa.field("prompt_length", pa.int32(), nullable=False),
        pa.field("response_length", pa.int32(), nullable=False),
        pa.field("total_length", pa.int32(), nullable=False),
        pa.field("num_masked", pa.int32()),
        pa.field("weight_versions", pa.list_(pa.string())),
        pa.field("tokens_kept", pa.bool_(), nullable=False),
        pa.field("tokens", pa.list_(pa.int32())),
        pa.field("loss_mask", pa.list_(pa.int8())),
        pa.field("rollout_log_probs", _FLOATS),
        pa.field("rollout_log_prob_mean", pa.float64()),
        pa.field("metadata", pa.string()),
    ]
)

LOGPROBS = pa.schema(
    [
        pa.field("rollout_id", pa.int64(), nullable=False),
        pa.field("sample_index", pa.int64(), nullable=False),
        pa.field("tokens_kept", pa.bool_(), nullable=False),
        pa.field("log_probs", _FLOATS),
        pa.field("ref_log_probs", _FLOATS),
        pa.field("entropy", _FLOATS),
        pa.field("advantages", _FLOATS),
        pa.field("returns", _FLOATS),
        pa.field("normalized_reward", pa.float64()),
        pa.field("log_prob_mean", pa.float64()),
        pa.field("entropy_mean", pa.float64()),
        pa.field("ref_unequal", pa.int32()),
        pa.field("ref_max_abs", pa.float64()),
        pa.field("ref_max_position", pa.int32()),
        pa.field("rollout_mean_abs", pa.float64()),
        pa.field("rollout_max_abs", pa.float64()),
        pa.field("rollout_max_position", pa.int32()),
        pa.field("num_nonfinite", pa.int32()),
    ]
)

TRAIN = pa.schema(
    [
        pa.field("rollout_id", pa.int64(), nullable=False),
        pa.field("sample_index", pa.int64(), nullable=False),
        pa.field("step_id", pa.int32(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("micro_batch", pa.int32(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
        pa.field("padded_length", pa.int32(), nullable=False),
    ]
)

VOCAB = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("bytes", pa.binary(), nullable=False),
        pa.field("special", pa.bool_(), nullable=False),
    ]
)

SCHEMAS: Mapping[StageFile, pa.Schema] = {
    StageFile.SAMPLES: SAMPLES,
    StageFile.LOGPROBS: LOGPROBS,
    StageFile.TRAIN: TRAIN,
}

TOKEN_COLUMNS: Mapping[StageFile, tuple[str, ...]] = {
    StageFile.SAMPLES: ("tokens", "loss_mask", "rollout_log_probs"),
    StageFile.LOGPROBS: (
        "log_probs",
        "ref_log_probs",
        "entropy",
        "advantages",
        "returns",
    ),
    StageFile.TRAIN: (),
}


@dataclass(frozen=True, kw_only=True)
class RecordMetadata:
    """What a stage file says of itself, in its Arrow schema metadata.

    Attributes:
        weights_version: Optimizer steps since the start that the responses ran on.
        weights_fingerprint: Fingerprint of those weights; '' when unknown.
        source: ``live``, ``excursion``, ``replay`` or a foreign format's name.
        layout: Parallel sizes, e.g. ``{"tp": 1, "pp": 1, "dp": 1}``.
        coverage: Which ranks and samples are here, e.g. ``{"ranks": [0], "of": 1}``.
        vocab: File name of the vocabulary, relative to the run folder.
        passes: Which forward pass each column came from.
        absent: ``{column: reason}`` for columns that the run does not have.
    """

    run_id: str
    attempt: int
    rollout_id: int
    weights_version: int
    weights_fingerprint: str = ""
    source: str = "live"
    arguments_digest: str = ""
    layout: Mapping[str, int] = field(default_factory=dict)
    coverage: Mapping[str, object] = field(default_factory=dict)
    vocab: str = ""
    passes: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
