"""Which dumps are there, and whether they are whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_steps import facts, samples, step

from relax.dump.catalogue import find_dumps, verify
from relax.dump.look import FORMATS, look
from relax.dump.paths import DumpPlaces, DumpTemplate
from relax.dump.write import DumpDirectory, dump_step, write_rollout_dump
from relax.errors import DumpMissing

FOREIGN = {
    "3.pt": ({"rollout_id": 3, "samples": samples()}, "rollout"),
    "eval_3.pt": ({"rollout_id": 3, "samples": []}, "rollout"),
    "data_70000.pt": ({"rollout_id": 70_000, "samples": samples()}, "rollout"),
    "3_0.pt": (
        {"rollout_id": 3, "rank": 0, "samples": [{"sample_index": 0}]},
        "train-samples",
    ),
    "3_1.pt": (
        {"rollout_id": 3, "rank": 1, "samples": [{"sample_index": 0}]},
        "train-samples",
    ),
    "4_2.pt": (
        {"rollout_id": 4, "rank": 2, "rollout_data": {"tokens": [torch.arange(3)]}},
        "train-columns",
    ),
    "v2.pt": (
        {"format_version": 2, "rollout_id": 5, "rank": 0, "samples": []},
        "train-v2",
    ),
}


def make_foreign(folder: Path) -> None:
    for name, (content, _) in FOREIGN.items():
        torch.save(content, folder / name)
    torch.save({"model": {"weight": torch.zeros(3)}}, folder / "model_optim_rng.pt")


def test_our_dumps_are_found_with_their_coverage(tmp_path):
    for rollout_id in (2, 10):
        dump_step(tmp_path, step(rollout_id), facts=facts())
    rows = [
        (entry.kind, entry.rollout_id, entry.coverage, entry.ranks)
        for entry in find_dumps(tmp_path)
    ]
    assert rows == [
        ("rollout", 2, "4 samples", ()),
        ("train", 2, "2 of 2 ranks", (0, 1)),
        ("rollout", 10, "4 samples", ()),
        ("train", 10, "2 of 2 ranks", (0, 1)),
    ]
    for entry in find_dumps(tmp_path):
        assert entry.manifest is not None
        assert verify(entry) == []
        json.dumps(entry.to_json())


def test_other_engines_dumps_are_told_apart_by_a_look(tmp_path):
    make_foreign(tmp_path)
    for name, (_, layout) in FOREIGN.items():
        assert look(tmp_path / name).layout == layout
    rows = [
        (entry.name, entry.rollout_id, entry.format, entry.coverage, len(entry.files))
        for entry in find_dumps(tmp_path)
    ]
    assert rows == [
        ("3", 3, "rollout", "", 1),
        ("3", 3, "train-samples", "ranks 0-1", 2),
        ("eval_3", 3, "rollout", "", 1),
        ("4", 4, "train-columns", "rank 2", 1),
        ("v2", 5, "train-v2", "", 1),
        ("70000", 70_000, "rollout", "", 1),
    ]
    for entry in find_dumps(tmp_path):
        assert entry.manifest is None
        assert verify(entry) == []
        assert entry.format in FORMATS


def test_one_file_and_one_manifest_can_be_named(tmp_path):
    dumped = dump_step(tmp_path, step(1), facts=facts())
    (entry,) = find_dumps(tmp_path / "train_data" / "1_1.pt")
    assert (entry.ranks, entry.coverage) == ((1,), "1 of 2 ranks")
    (entry,) = find_dumps(tmp_path / "rollout_data" / "1.pt")
    assert entry.manifest_path == dumped.manifest
    kinds = [entry.kind for entry in find_dumps(dumped.manifest)]
    assert kinds == ["rollout", "train"]
    with pytest.raises(DumpMissing):
        find_dumps(tmp_path / "nowhere")


def test_a_folder_that_was_moved_is_still_whole(tmp_path):
    dump_step(tmp_path / "old", step(1), facts=facts())
    (tmp_path / "old").rename(tmp_path / "new")
    assert [verify(entry) for entry in find_dumps(tmp_path / "new")] == [[], []]


def test_train_files_in_another_place_are_found_by_the_manifest(tmp_path):
    places = DumpPlaces(
        rollout=DumpTemplate(str(tmp_path / "a" / "{rollout_id}.pt")),
        train=DumpTemplate(str(tmp_path / "b" / "{rollout_id}_{rank}.pt")),
    )
    DumpDirectory(places=places, facts=facts()).dump(step(1))
    train = find_dumps(tmp_path / "a")[1]
    assert train.ranks == (0, 1)
    assert train.faults == ()


def test_damage_is_found(tmp_path):
    for rollout_id in range(4):
        dump_step(tmp_path, step(rollout_id), facts=facts())
    data = tmp_path / "rollout_data"
    flipped = bytearray((data / "0.pt").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (data / "0.pt").write_bytes(flipped)
    os.truncate(data / "1.pt", 300)
    (data / "2.pt").unlink()
    (tmp_path / "train_data" / "3_1.pt").write_bytes(b"")
    entries = {(e.kind, e.rollout_id): e for e in find_dumps(tmp_path)}
    problems = {key: " ".join(verify(entry)) for key, entry in entries.items()}
    assert "sha256" in problems["rollout", 0]
    assert "truncated" in problems["rollout", 1]
    assert "missing" in problems["rollout", 2]
    assert "empty" in problems["train", 3]
    assert entries["train", 3].coverage == "1 of 2 ranks"
    assert problems["train", 0] == problems["rollout", 3] == ""


def test_damage_without_a_manifest_is_found_by_check_sums(tmp_path):
    path = write_rollout_dump(
        tmp_path / "0.pt", [{"tokens": np.arange(500)}], rollout_id=0
    ).path
    content = bytearray(path.read_bytes())
    place = content.rindex(np.arange(400, 500).tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    (entry,) = find_dumps(tmp_path)
    assert "CRC" in verify(entry)[0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"PK\x03\x04" + b"\xff" * 60,
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
        b"PK\x05\x06" + bytes(18),
        os.urandom(70_000),
    ],
)
def test_what_is_no_dump_does_no_harm(tmp_path, content):
    folder = tmp_path / "rollout_data"
    folder.mkdir()
    (folder / "0.pt").write_bytes(content)
    (folder / "x.manifest.json").write_bytes(content)
    (entry,) = find_dumps(tmp_path)
    assert entry.format == "unknown"
    assert verify(entry)


def test_every_cut_of_a_dump_is_seen_as_truncated(tmp_path):
    path = write_rollout_dump(tmp_path / "0.pt", samples(2), rollout_id=0).path
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert look(path).fault


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path):
    (tmp_path / "rollout_data").mkdir()
    os.mkfifo(tmp_path / "rollout_data" / "0.pt")
    (entry,) = find_dumps(tmp_path)
    assert "regular" in verify(entry)[0]
