"""Dump files: what `torch.load` reads from them is what was written."""

from __future__ import annotations

import math
import tracemalloc
import zipfile
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relax.dump.write import (
    estimate_rollout_bytes,
    write_rollout_dump,
    write_train_dump,
)
from relax.dump.write.torch_zip import TorchZip
from relax.engine.rollout.sample import Sample, SampleStatus
from relax.errors import DumpError

WAYS = (
    {"weights_only": True},
    {"weights_only": False},
    {"weights_only": True, "mmap": True},
)


def each_way(path: Path) -> list[Any]:
    return [torch.load(path, map_location="cpu", **way) for way in WAYS]


class Status(StrEnum):
    DONE = "completed"


def test_a_rollout_dump_holds_the_samples_as_they_were(tmp_path):
    samples = [
        {
            "group_index": index // 2,
            "index": index,
            "prompt": [{"role": "user", "content": "2+2?"}],
            "tokens": list(range(40_000)),
            "response": "vier \ud800 😀\n",
            "reward": {"score": 1.0, "ok": True},
            "label": None,
            "loss_mask": [],
            "rollout_log_probs": [-0.0, math.inf, -math.inf, -1e-300],
            "status": "completed",
            "metadata": {
                "_timing": {"generate": 0.5},
                3: (1, ()),
                "raw": [b"\xff", b""],
            },
        }
        for index in range(3)
    ]
    written = write_rollout_dump(tmp_path / "d" / "7.pt", samples, rollout_id=7)
    assert written.bytes == written.path.stat().st_size
    for content in each_way(written.path):
        assert content == {"rollout_id": 7, "samples": samples}
        assert list(content["samples"][0]) == list(samples[0])
        assert math.copysign(1, content["samples"][0]["rollout_log_probs"][0]) == -1


def test_no_samples_are_a_dump_too(tmp_path):
    path = write_rollout_dump(tmp_path / "0.pt", iter(()), rollout_id=0).path
    assert each_way(path) == [{"rollout_id": 0, "samples": []}] * 3


def test_nan_stays_nan(tmp_path):
    sample = {"rollout_log_probs": [math.nan, 1.0]}
    path = write_rollout_dump(tmp_path / "0.pt", [sample], rollout_id=0).path
    for content in each_way(path):
        first, second = content["samples"][0]["rollout_log_probs"]
        assert math.isnan(first)
        assert second == 1.0


def test_subclasses_become_what_they_are_made_of(tmp_path):
    sample = {"status": Status.DONE, "reward": np.float32(0.5), "index": np.int64(3)}
    path = write_rollout_dump(tmp_path / "0.pt", [sample], rollout_id=0).path
    plain = {"status": "completed", "reward": 0.5, "index": 3}
    for content in each_way(path):
        assert content["samples"] == [plain]
        assert [type(v) for v in content["samples"][0].values()] == [str, float, int]


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "complex64", "bool"),
        *("int64", "int32", "int16", "int8", "uint8"),
    ],
)
def test_arrays_become_tensors_of_the_same_bits(tmp_path, dtype):
    draw = np.random.default_rng(0)
    arrays = [
        draw.integers(0, 2, size=shape).astype(dtype)
        for shape in ((3,), (0,), (), (2, 3, 4), (0, 5))
    ]
    arrays.append(arrays[3].transpose(2, 0, 1)[::2])
    arrays.append(arrays[0].astype(arrays[0].dtype.newbyteorder(">")))
    data = {"columns": arrays, "one": arrays[0], "nested": {"deep": [1, arrays[3]]}}
    path = write_train_dump(tmp_path / "0_1.pt", data, rollout_id=0, rank=1).path
    for content in each_way(path):
        assert (content["rollout_id"], content["rank"]) == (0, 1)
        read = content["rollout_data"]
        tensors = [*read["columns"], read["one"], read["nested"]["deep"][1]]
        expected = [*arrays, arrays[0], arrays[3]]
        for tensor, array in zip(tensors, expected, strict=True):
            assert tensor.dtype == getattr(torch, dtype)
            assert tensor.shape == array.shape
            assert np.array_equal(tensor.numpy(), array)


def test_a_column_of_tensors_shares_one_storage(tmp_path):
    columns = {"log_probs": [np.full(n, n, np.float32) for n in range(200)]}
    path = write_train_dump(tmp_path / "0_0.pt", columns, rollout_id=0, rank=0).path
    with zipfile.ZipFile(path) as archive:
        storages = [name for name in archive.namelist() if "/data/" in name]
    assert storages == ["archive/data/0"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({1, 2}, "set"),
        ([1, {2}], "set"),
        ([0, frozenset()], "frozenset"),
        (bytearray(b"x"), "bytearray"),
        (1j, "complex"),
        (object(), "object"),
        (print, "builtin_function"),
        (Path("x"), "pathlib"),
        (torch.zeros(1), "torch.Tensor"),
        (np.array(["text"]), "array of str"),
        (np.array([None]), "array of object"),
        (np.zeros(1, np.uint32), "array of uint32"),
        ({(1, 2): 0}, "has a key"),
        (1 << 5000, "integer of more than 255 bytes"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_place(tmp_path, value, kind):
    sample = {"metadata": {"when": value}}
    with pytest.raises(DumpError) as caught:
        write_rollout_dump(tmp_path / "0.pt", [{}, sample], rollout_id=0)
    assert caught.value.what.startswith("samples[1].metadata['when']")
    assert kind in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_contains_itself_is_refused(tmp_path):
    loop: list[Any] = [1]
    loop.append(loop)
    with pytest.raises(DumpError, match="contains itself"):
        write_rollout_dump(tmp_path / "0.pt", [{"metadata": loop}], rollout_id=0)


def test_a_sample_that_is_no_dict_is_refused(tmp_path):
    with pytest.raises(DumpError, match="sample 0 is a list"):
        write_rollout_dump(tmp_path / "0.pt", [[1]], rollout_id=0)


def test_nothing_executes_that_was_only_dumped(tmp_path):
    class Trap:
        def __reduce__(self):
            raise AssertionError("a dump asked an object for its pickle")

    with pytest.raises(DumpError, match="Trap"):
        write_rollout_dump(tmp_path / "0.pt", [{"x": [1, Trap()]}], rollout_id=0)


def test_the_same_content_gives_the_same_file(tmp_path):
    sample = {"tokens": [1, 2], "experts": np.arange(4)}
    one = write_rollout_dump(tmp_path / "a.pt", [sample], rollout_id=0)
    two = write_rollout_dump(tmp_path / "b.pt", [sample], rollout_id=0)
    assert one.sha256 == two.sha256
    assert one.path.read_bytes() == two.path.read_bytes()


def test_check_sums_and_alignment_are_those_of_a_zip(tmp_path):
    path = write_rollout_dump(
        tmp_path / "0.pt", [{"a": np.arange(9), "b": np.ones(3)}], rollout_id=0
    ).path
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        for entry in archive.infolist():
            header = path.read_bytes()[entry.header_offset :]
            length = int.from_bytes(header[26:28], "little")
            extra = int.from_bytes(header[28:30], "little")
            assert (entry.header_offset + 30 + length + extra) % 64 == 0
    assert names[0] == "archive/data.pkl"


def test_large_sizes_are_written_as_zip64(tmp_path):
    """With the bound at 100 bytes instead of 4 GiB, so that it needs no such file."""
    path = tmp_path / "wide.zip"
    contents = {"small": b"x", "large": bytes(range(200)), "after": b"y" * 3}
    with path.open("wb") as stream:
        archive = TorchZip(stream.write, limit=100)
        for name, content in contents.items():
            with archive.entry(name) as write:
                write(content)
        archive.close()
    with zipfile.ZipFile(path) as read:
        assert {n: read.read(f"archive/{n}") for n in contents} == contents
        assert read.testzip() is None
    reader = torch.PyTorchFileReader(str(path))
    assert {n: reader.get_record(n) for n in contents} == contents


def test_an_estimate_is_near_the_size(tmp_path):
    draw = np.random.default_rng(0)
    samples = [
        {
            "prompt": "a" * int(draw.integers(10, 50)),
            "tokens": draw.integers(0, 100_000, size=size).tolist(),
            "rollout_log_probs": draw.random(size - 5).tolist(),
        }
        for size in draw.integers(50, 900, size=120)
    ]
    estimate = estimate_rollout_bytes(samples)
    written = write_rollout_dump(tmp_path / "0.pt", samples, rollout_id=0)
    assert abs(estimate - written.bytes) < 0.2 * written.bytes
    assert estimate_rollout_bytes([]) == 0


def test_memory_does_not_grow_with_the_dump(tmp_path):
    values = [-0.001 * number for number in range(100_000)]
    columns = {"rollout_log_probs": values, "metadata": {"turns": values}}
    tracemalloc.start()
    try:
        written = write_rollout_dump(
            tmp_path / "0.pt",
            ({"index": i, **columns} for i in range(25)),
            rollout_id=0,
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.bytes > 40 << 20
    assert peak < 8 << 20


def test_samples_of_the_engine_come_back(tmp_path):
    sample = Sample(
        index=3,
        group_index=1,
        prompt="2+2",
        tokens=[1, 2, 3],
        response_length=2,
        reward=1.0,
        rollout_log_probs=np.array([-0.5, -0.25], np.float32),
        status=SampleStatus.TRUNCATED,
        extra={"session_id": "s"},
    )
    path = write_rollout_dump(tmp_path / "0.pt", [sample.to_dict()], rollout_id=0).path
    (row,) = torch.load(path, weights_only=True)["samples"]
    assert row["status"] == "truncated"
    assert Sample.from_dict(row).to_dict() == sample.to_dict()


def test_progress_ends_with_the_size(tmp_path):
    seen: list[int] = []
    samples = [{"tokens": list(range(30_000))} for _ in range(40)]
    written = write_rollout_dump(
        tmp_path / "0.pt", samples, rollout_id=0, on_progress=seen.append
    )
    assert seen == sorted(seen)
    assert len(seen) > 2
    assert seen[-1] == written.bytes
