"""Rollout dumps of every writer and shape come out as rows of samples.arrow."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from foreign_dumps import (
    decode_in_process,
    make_truth,
    rollout_sample,
    save,
    save_rollout,
    stage,
)

from relax.dump.decode.archive import Archive
from relax.dump.decode.content import SEPARATE_FROM_BYTES, read_content
from relax.dump.decode.separate import NotSeparable, SeparateSamples
from relax.dump.manifest import (
    Coverage,
    Manifest,
    ManifestFile,
    MicroBatch,
    WeightsNote,
    write_manifest,
)
from relax.dump.write import write_rollout_dump, write_train_dump
from relax.errors import DumpError
from relax.records.open import StepRecord, read_vocabulary
from relax.records.schema import StageFile


def decoded_rows(tmp_path, samples, **options):
    path = save(tmp_path / "3.pt", {"rollout_id": 3, "samples": samples})
    decoded = decode_in_process([path], tmp_path / "out", **options)
    return stage(decoded, "samples"), decoded


def test_a_sample_of_relax(tmp_path):
    (one,) = make_truth(1)
    path = save_rollout(tmp_path / "3.pt", [one])
    decoded = decode_in_process([path], tmp_path / "out")
    (row,) = stage(decoded, "samples")
    metadata = json.loads(row.pop("metadata"))
    log_probs = one.columns["rollout_log_probs"]
    chosen = log_probs[np.array(one.mask, bool)].astype(np.float64)
    assert row.pop("rollout_log_prob_mean") == pytest.approx(chosen.sum() / chosen.size)
    assert row == {
        "rollout_id": 3,
        "sample_index": 100,
        "group_index": 0,
        "status": "completed",
        "stop_reason": "stop",
        "failure": None,
        "reward": 0.0,
        "label": "7",
        "prompt": "prompt 0",
        "response": "ok \\ud800 déjà",
        "prompt_length": one.total - one.response,
        "response_length": one.response,
        "total_length": one.total,
        "num_masked": one.mask.count(0),
        "weight_versions": ["3"],
        "tokens_kept": True,
        "tokens": one.tokens,
        "loss_mask": one.mask,
        "rollout_log_probs": log_probs.tolist(),
    }
    assert metadata["turns"] == [1, 2]
    experts = f"<array int32 [{one.total - 1}, 2, 2]>"
    assert metadata["sample"] == {
        "session_id": "s-100",
        "rollout_routed_experts": experts,
        "spec_info": {"spec_verify_ct": 0},
    }
    assert decoded.source_format == "Relax rollout"
    assert decoded.rollout_id == 3
    assert not decoded.notes
    vocabulary = read_vocabulary(decoded.folder / "vocab-dump.arrow")
    assert vocabulary.text(one.tokens) == [f"t{token}" for token in one.tokens]


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"abort_count": 0}, "Relax rollout"),
        ({"trace": [{"name": "generate", "seconds": 0.5}]}, "slime rollout"),
        ({}, "rollout"),
    ],
)
def test_the_project_is_told_from_the_fields(tmp_path, fields, source):
    sample = {"index": 0, "tokens": [1, 2], "response_length": 1, "status": "failed"}
    rows, decoded = decoded_rows(tmp_path, [sample | fields])
    assert decoded.source_format == source
    assert rows[0]["status"] == "failed"


def test_miles_has_metadata_beside_the_samples(tmp_path):
    path = save_rollout(tmp_path / "3.pt", make_truth(2), metadata={"step": 1})
    decoded = decode_in_process([path], tmp_path / "out")
    assert decoded.source_format == "miles rollout"
    assert decoded.num_samples == 2


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_any_protocol(tmp_path, protocol):
    truth = make_truth(3)
    samples = [rollout_sample(one, when={1, 2}, raw=b"\xff\x00") for one in truth]
    path = tmp_path / "3.pkl"
    content = {"rollout_id": 3, "samples": samples}
    path.write_bytes(pickle.dumps(content, protocol))
    rows = stage(decode_in_process([path], tmp_path / "out"), "samples")
    assert [row["tokens"] for row in rows] == [one.tokens for one in truth]
    metadata = json.loads(rows[0]["metadata"])["sample"]
    assert (metadata["when"], metadata["raw"]) == ([1, 2], "<2 bytes>")
    path = save(tmp_path / "3.pt", content, pickle_protocol=protocol)
    again = stage(decode_in_process([path], tmp_path / "again"), "samples")
    assert again == rows


def test_tensors_and_arrays_stand_for_lists(tmp_path):
    (one,) = make_truth(1)
    sample = rollout_sample(
        one,
        tokens=torch.tensor(one.tokens),
        loss_mask=np.array(one.mask, np.int64),
        rollout_log_probs=torch.tensor(one.columns["rollout_log_probs"]),
        reward=np.float64(0.25),
        response_length=torch.tensor(one.response),
    )
    (row,), decoded = decoded_rows(tmp_path, [sample])
    assert row["tokens"] == one.tokens
    assert row["loss_mask"] == one.mask
    assert row["rollout_log_probs"] == one.columns["rollout_log_probs"].tolist()
    assert row["reward"] == 0.25
    assert not decoded.notes


def test_malformed_samples_keep_what_is_readable(tmp_path):
    truth = make_truth(9)
    samples: list[Any] = [rollout_sample(one) for one in truth]
    samples[1]["rollout_log_probs"] = samples[1]["rollout_log_probs"][:-1]
    samples[2]["loss_mask"] = [2] * truth[2].response
    samples[3]["tokens"] = ["a"] * truth[3].total
    samples[4]["response_length"] = 10_000
    samples[5]["status"] = "happy"
    samples[6]["rollout_log_probs"][3] = None
    samples[7] = "no sample"
    samples[8]["index"] = None
    rows, decoded = decoded_rows(tmp_path, samples)
    assert len(rows) == 9
    assert rows[0]["rollout_log_probs"] is not None
    assert rows[1]["rollout_log_probs"] is None
    assert rows[1]["tokens"] == truth[1].tokens
    assert rows[2]["loss_mask"] is None
    assert rows[3]["tokens"] is None
    assert rows[4]["response_length"] == truth[4].response
    assert rows[5]["status"] == "unknown"
    assert rows[6]["rollout_log_probs"] is None
    assert rows[7]["status"] == "unknown"
    assert rows[8]["sample_index"] == 8
    notes = "\n".join(decoded.notes)
    for words in (
        "rollout_log_probs is not as long as the response; left out (sample 1)",
        "loss_mask has entries other than 0 and 1; left out (sample 2)",
        "tokens has entries that are no token ids; left out (sample 3)",
        "response_length 10000 does not fit",
        "its status is 'happy' (sample 5)",
        "rollout_log_probs has entries that are no numbers; left out (sample 6)",
        "an entry is a str, not a sample (sample 7)",
        "has no index; its place in the file is taken (sample 8)",
    ):
        assert words in notes


def test_nothing_absent_is_filled_up(tmp_path):
    (one,) = make_truth(1)
    sample = rollout_sample(one, loss_mask=None, rollout_log_probs=[], reward=None)
    (row,), decoded = decoded_rows(tmp_path, [sample])
    assert row["loss_mask"] is None
    assert row["num_masked"] is None
    assert row["rollout_log_probs"] is None
    assert row["reward"] is None
    assert not decoded.notes


def test_rewards_that_are_dicts_need_a_key(tmp_path):
    (one,) = make_truth(1)
    samples = [rollout_sample(one, reward={"score": 0.5, "length": 9})]
    (row,), decoded = decoded_rows(tmp_path / "a", samples)
    assert row["reward"] is None
    assert "length, score" in decoded.notes[0]
    assert json.loads(row["metadata"])["sample"]["reward"]["score"] == 0.5
    (row,), decoded = decoded_rows(tmp_path / "b", samples, reward_key="score")
    assert row["reward"] == 0.5
    assert not decoded.notes


SLIME_TYPES = """
import enum
from dataclasses import dataclass, field

@dataclass
class Sample:
    class Status(enum.Enum):
        COMPLETED = "completed"

    index: int = 0
    tokens: list = field(default_factory=list)
    response_length: int = 0
    status: Status = Status.COMPLETED
"""

PICKLE_SAMPLES = """
import pickle, sys
from slime.utils.types import Sample
content = {"rollout_id": 3, "samples": [Sample(5, [1, 2, 3], 2)]}
for protocol in (2, 3, 4, 5):
    with open(f"{sys.argv[1]}/{protocol}.pkl", "wb") as stream:
        pickle.dump(content, stream, protocol)
"""


def test_objects_of_packages_that_are_not_here(tmp_path):
    package = tmp_path / "packages" / "slime" / "utils"
    package.mkdir(parents=True)
    (package / "types.py").write_text(SLIME_TYPES)
    command = [sys.executable, "-c", PICKLE_SAMPLES, str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path / "packages")
    for protocol in (2, 3, 4, 5):
        path = tmp_path / f"{protocol}.pkl"
        decoded = decode_in_process([path], tmp_path / f"out{protocol}")
        (row,) = stage(decoded, "samples")
        assert (row["sample_index"], row["tokens"]) == (5, [1, 2, 3])
        assert row["status"] == "completed"


def large_samples(count: int) -> list[dict[str, Any]]:
    truth = make_truth(count, longest=400)
    prompts = [f"prompt {group}" for group in range(count)]
    return [
        rollout_sample(
            one, prompt=prompts[one.group], metadata={"index": 1, "group_index": 2}
        )
        for one in truth
    ]


@pytest.mark.parametrize("writer", ["torch", "ours"])
@pytest.mark.parametrize("count", [900, 1000, 1001, 2001])
def test_samples_one_by_one_are_the_samples_at_once(tmp_path, writer, count):
    """Lists are pickled a thousand entries at a time."""
    samples = large_samples(count)
    path = tmp_path / "3.pt"
    if writer == "torch":
        save(path, {"rollout_id": 3, "samples": samples, "after": 1})
    else:
        write_rollout_dump(path, samples, rollout_id=3)
    with Archive(path) as archive:
        assert archive.pickle.size > SEPARATE_FROM_BYTES
        stream = SeparateSamples(archive, advance=lambda _: None)
        whole = read_content(archive, advance=lambda _: None, separate=False)
        compared = 0
        for one, other in zip(stream, whole.samples, strict=True):
            del one["rollout_routed_experts"], other["rollout_routed_experts"]
            assert one == other
            compared += 1
        assert compared == count
        assert {**stream.keys, **stream.tail} == whole.keys


def test_memory_does_not_grow_with_the_samples(tmp_path):
    """The memo is thinned; what a group shares and single letters are still found."""
    samples = large_samples(1500)
    for number, sample in enumerate(samples):
        # Python has one object for each of these, first met early or late.
        sample["label"] = chr((97 if number < 700 else 192) + number % 20)
    path = save(tmp_path / "3.pt", {"rollout_id": 3, "samples": samples})
    with Archive(path) as archive:
        stream = SeparateSamples(archive, advance=lambda _: None, memo_bytes=1 << 20)
        texts, peak = texts_and_peak(stream)
    assert texts == [(sample["prompt"], sample["label"]) for sample in samples]
    with Archive(path) as archive:
        tracemalloc.start()
        read_content(archive, advance=lambda _: None, separate=False)
        assert peak < tracemalloc.get_traced_memory()[1] / 4
        tracemalloc.stop()


def texts_and_peak(samples):
    tracemalloc.start()
    texts = [(sample["prompt"], sample["label"]) for sample in samples]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return texts, peak


def test_lists_that_samples_share_are_read_at_once(tmp_path):
    samples = large_samples(300)
    for sample in samples:
        sample["loss_mask"] = samples[0]["loss_mask"]
        sample["rollout_log_probs"] = None
    path = save(tmp_path / "3.pt", {"rollout_id": 3, "samples": samples})
    with Archive(path) as archive, pytest.raises(NotSeparable):
        list(SeparateSamples(archive, advance=lambda _: None))
    rows = stage(decode_in_process([path], tmp_path / "out"), "samples")
    assert rows[0]["loss_mask"] == samples[0]["loss_mask"]
    fitting = [r for r in rows if r["response_length"] == rows[0]["response_length"]]
    assert all(row["loss_mask"] == rows[0]["loss_mask"] for row in fitting)


def test_keys_behind_the_samples_count(tmp_path):
    samples = large_samples(300)
    samples[0]["status"] = "odd"
    content = {"samples": samples, "rollout_id": 7}
    path = save(tmp_path / "3.pt", content)
    decoded = decode_in_process([path], tmp_path / "out")
    assert decoded.rollout_id == 7
    assert decoded.notes == ("its status is 'odd' (sample 0)",)


def test_what_our_writers_write_is_read(tmp_path):
    truth = make_truth(4)
    samples = [rollout_sample(one) for one in truth]
    rollout = write_rollout_dump(tmp_path / "3.pt", samples, rollout_id=3)
    columns = {
        "tokens": [np.array(one.tokens, np.int64) for one in truth],
        "response_lengths": [one.response for one in truth],
        "total_lengths": [one.total for one in truth],
        "log_probs": [one.columns["log_probs"] for one in truth],
        "sample_indices": [one.index for one in truth],
    }
    train = write_train_dump(tmp_path / "3_0.pt", columns, rollout_id=3, rank=0)
    decoded = decode_in_process([rollout.path, train.path], tmp_path / "out")
    assert not decoded.notes
    assert decoded.stages == ("samples", "logprobs")
    rows = stage(decoded, "logprobs")
    assert [row["log_probs"] for row in rows] == [
        one.columns["log_probs"].tolist() for one in truth
    ]


def test_the_manifest_says_what_the_files_do_not(tmp_path):
    truth = make_truth(4)
    samples = [rollout_sample(one) for one in truth]
    rollout = write_rollout_dump(tmp_path / "3.pt", samples, rollout_id=3)
    columns = {
        "tokens": [np.array(one.tokens, np.int64) for one in truth],
        "response_lengths": [one.response for one in truth],
        "log_probs": [one.columns["log_probs"] for one in truth],
    }
    train = write_train_dump(tmp_path / "3_0.pt", columns, rollout_id=3, rank=0)
    files = [
        ManifestFile(kind=kind, path=w.path.name, bytes=w.bytes, sha256=w.sha256)
        for kind, w in (("rollout", rollout), ("train", train))
    ]
    batches = [
        MicroBatch(step_id=0, rank=0, number=n, padded_length=64, samples=(i, i + 1))
        for n, i in enumerate((100, 102))
    ]
    manifest = Manifest(
        run_id="r-1",
        attempt=2,
        rollout_id=3,
        written_at=0.0,
        weights=WeightsNote(version=5, fingerprint="f"),
        coverage=Coverage(samples=4, ranks=(0,), world_size=2),
        files=tuple(files),
        layout={"tp": 1, "cp": 1},
        micro_batches=tuple(batches),
    )
    write_manifest(tmp_path / "3.manifest.json", manifest)
    decoded = decode_in_process([rollout.path, train.path], tmp_path / "out")
    assert decoded.coverage["of"] == 2
    record = StepRecord.at(decoded.folder, rollout_id=3)
    metadata = record.metadata(StageFile.LOGPROBS)
    assert (metadata.run_id, metadata.attempt) == ("r-1", 2)
    assert (metadata.weights_version, metadata.weights_fingerprint) == (5, "f")
    assert metadata.absent["entropy"] == "the dump has none"
    places = [tuple(row.values()) for row in stage(decoded, "train")]
    assert places[1:3] == [(3, 101, 0, 0, 0, 1, 64), (3, 102, 0, 0, 1, 0, 64)]


def test_two_rollout_dumps_are_refused(tmp_path):
    paths = [save_rollout(tmp_path / name, make_truth(1)) for name in ("a.pt", "b.pt")]
    with pytest.raises(DumpError, match="several rollout dumps"):
        decode_in_process(paths, tmp_path / "out")
