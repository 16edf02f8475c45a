"""Removing dumps: what goes, and what must never go."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from dump_steps import facts, samples, step

from relax.dump.catalogue import find_dumps, verify
from relax.dump.removal import Removed, removable, remove_dump
from relax.dump.write import dump_step
from relax.errors import DumpError


def test_a_step_goes_with_all_its_ranks_and_its_manifest(tmp_path):
    for rollout_id in (2, 10):
        dump_step(tmp_path, step(rollout_id), facts=facts())
    entries = removable(find_dumps(tmp_path))
    assert [entry.rollout_id for entry in entries] == [2, 10]
    removed = remove_dump(entries[0], root=tmp_path)
    assert removed == Removed(files=3, bytes=entries[0].step_bytes)
    assert {entry.rollout_id for entry in find_dumps(tmp_path)} == {10}
    assert not [path for path in tmp_path.rglob("2*") if path.is_file()]


def test_another_engines_files_go_one_by_one(tmp_path):
    for name in ("3.pt", "4.pt"):
        torch.save({"rollout_id": 3, "samples": samples()}, tmp_path / name)
    first, second = removable(find_dumps(tmp_path))
    assert remove_dump(first, root=tmp_path).files == 1
    assert [entry.name for entry in find_dumps(tmp_path)] == [second.name]


@pytest.mark.parametrize("how", ["outside", "link", "grown"])
def test_a_manifest_cannot_have_other_files_removed(tmp_path, how):
    root = tmp_path / "dumps"
    dump_step(root, step(2), facts=facts())
    (entry,) = removable(find_dumps(root))
    precious = tmp_path / "precious.pt"
    (dump,) = root.rglob("2.pt")
    if how == "outside":
        named = dataclasses.replace(entry.manifest.files[0], path="../../precious.pt")
        precious.write_bytes(b"x" * named.bytes)
        manifest = dataclasses.replace(entry.manifest, files=(named,))
        entry = dataclasses.replace(entry, manifest=manifest)
    elif how == "link":
        dump.rename(precious)
        dump.symlink_to(precious)
    else:
        precious = dump
        precious.write_bytes(precious.read_bytes() + b"more")
    before = precious.read_bytes()
    removed = remove_dump(entry, root=root)
    assert len(removed.left) == 1
    assert removed.left[0].endswith("and stays")
    assert precious.read_bytes() == before


@pytest.mark.parametrize("manifest", [True, False])
def test_verifying_can_be_cancelled(tmp_path, manifest):
    dump_step(tmp_path, step(2), facts=facts())
    if not manifest:
        for path in tmp_path.rglob("*.manifest.json"):
            path.unlink()
    entry = find_dumps(tmp_path)[0]
    assert (entry.manifest is not None) == manifest
    read: list[int] = []
    assert verify(entry, on_progress=read.append) == []
    assert read == sorted(read)
    assert read[-1] > 0
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(DumpError, match="cancelled"):
        verify(entry, cancel=cancel)
