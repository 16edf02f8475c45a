"""Dumps appear whole or not at all: killed writers, full disks, taken names."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dump_steps import facts, names, samples, step

from relax.arguments.environment import child_python_path
from relax.dump.catalogue import find_dumps, verify
from relax.dump.paths import DumpPlaces
from relax.dump.write import (
    DumpDirectory,
    write_rollout_dump,
    write_train_dump,
)
from relax.dump.write.transaction import DumpTransaction
from relax.errors import DumpError

HERE = Path(__file__).parent
FILES = [
    "rollout_data/0.manifest.json",
    "rollout_data/0.pt",
    "train_data/0_0.pt",
    "train_data/0_1.pt",
]


def directory(folder: Path, *, overwrite: bool = False) -> DumpDirectory:
    return DumpDirectory(
        places=DumpPlaces.under(folder), facts=facts(), overwrite=overwrite
    )


def final_names(folder: Path) -> list[str]:
    return [name for name in names(folder) if "/.tmp-relax-" not in name]


def dying(folder: Path, shift: int, what: str, count: int) -> bool:
    """Runs a writer that kills itself; whether it came to its end."""
    done = subprocess.run(
        [
            sys.executable,
            HERE / "dying_writer.py",
            folder,
            str(shift),
            what,
            str(count),
        ],
        env={"PYTHONPATH": child_python_path(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        assert done.stdout == "whole\n"
        return True
    assert done.returncode == -signal.SIGKILL, done.stderr
    return False


def whole_contents(folder: Path) -> set[float]:
    """Reads every file under a final name; which shifts their contents have."""
    shifts = set()
    for path in folder.rglob("*.pt"):
        if path.name.startswith("."):
            continue
        content = torch.load(path, weights_only=True)
        if "samples" in content:
            shifts.add(float(content["samples"][0]["tokens"][0]))
        else:
            shifts.add(-0.5 - content["rollout_data"]["log_probs"][0][0].item())
    return shifts


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_a_writer_killed_while_it_writes_leaves_no_file(tmp_path, count):
    assert not dying(tmp_path, 0, "progress", count)
    assert final_names(tmp_path) == []
    left = names(tmp_path)
    assert left, "it was killed before it wrote anything"
    directory(tmp_path).dump(step(0))
    assert names(tmp_path) == FILES


def test_killed_at_any_rename_every_name_is_whole_and_the_manifest_last(tmp_path):
    moments = 0
    while True:
        folder = tmp_path / str(moments)
        if dying(folder, 0, "disk", moments):
            break
        moments += 1
        found = final_names(folder)
        assert found in ([], *([*FILES[1 : 1 + n]] for n in range(1, 4)), FILES)
        assert whole_contents(folder) <= {0.0}
        if FILES[0] in found:
            assert [p for e in find_dumps(folder) for p in verify(e)] == []
        directory(folder).dump(step(0))
        assert names(folder) == FILES
    # Four files: each locked, and renamed.
    assert moments >= 8


def test_killed_while_it_replaces_every_name_is_the_old_or_the_new(tmp_path):
    moments, mixed = 0, False
    while True:
        folder = tmp_path / str(moments)
        directory(folder).dump(step(0))
        if dying(folder, 7, "disk", moments):
            break
        moments += 1
        assert final_names(folder) == FILES
        shifts = whole_contents(folder)
        assert shifts <= {0.0, 7.0}
        problems = [p for e in find_dumps(folder) for p in verify(e)]
        # A mixture is possible; that nobody notices it is not.
        assert bool(problems) == (len(shifts) == 2) or shifts == {7.0}
        mixed |= len(shifts) == 2
        directory(folder, overwrite=True).dump(step(0, shift=7))
        assert names(folder) == FILES
        assert whole_contents(folder) == {7.0}
    assert moments >= 12
    assert mixed


def test_a_temporary_file_of_a_living_writer_stays(tmp_path):
    abandoned = tmp_path / ".tmp-relax-00000000-0.pt"
    abandoned.write_bytes(b"left by a killed writer")
    foreign = tmp_path / ".tmp-other"
    foreign.write_bytes(b"not ours")
    held = tmp_path / ".tmp-relax-11111111-1.pt"
    with held.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        write_rollout_dump(tmp_path / "0.pt", samples(), rollout_id=0)
        assert names(tmp_path) == [foreign.name, held.name, "0.pt"]
    write_rollout_dump(tmp_path / "0.pt", samples(), rollout_id=0)
    assert names(tmp_path) == [foreign.name, "0.pt"]


def test_a_full_and_a_read_only_disk_change_nothing(tmp_path):
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    if able.returncode:
        pytest.skip("NOT TESTED: no mount namespace may be made on this machine")
    done = subprocess.run(
        [*unshare, sys.executable, HERE / "full_disk.py", tmp_path],
        env={"PYTHONPATH": child_python_path(), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["first"] == told["again"] == "written"
    assert "the disk is full" in told["full"]
    assert "earlier dumps are untouched" in told["full"]
    assert "1_" in told["full"] or "1.pt" in told["full"]
    assert told["names"] == FILES
    assert told["names after full"] == told["names after single"] == FILES
    assert "read-only" in told["read-only"]
    assert "read-only" in told["elsewhere"]
    assert told["names at the end"] == told["names after again"]


def test_a_file_that_may_not_grow_changes_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(DumpError, match="larger than this process may write"):
            write_rollout_dump(
                tmp_path / "0.pt", samples(40, tokens=50_000), rollout_id=0
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []


def test_a_place_that_is_no_folder_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "0.pt", Path("/proc/nowhere/0.pt")):
        with pytest.raises(DumpError) as caught:
            write_rollout_dump(place, samples(), rollout_id=0)
        assert caught.value.where == str(place)
        assert "\n" not in str(caught.value)


def test_the_same_content_is_accepted_and_another_refused(tmp_path):
    path = tmp_path / "0.pt"
    first = write_rollout_dump(path, samples(), rollout_id=0)
    inode = path.stat().st_ino
    assert write_rollout_dump(path, samples(), rollout_id=0) == first
    assert path.stat().st_ino == inode
    with pytest.raises(DumpError, match="--overwrite-dumps") as caught:
        write_train_dump(path, {"a": [1]}, rollout_id=0, rank=0)
    assert caught.value.where == str(path)
    assert whole_contents(tmp_path) == {0.0}
    write_rollout_dump(path, samples(shift=3), rollout_id=0, overwrite=True)
    assert whole_contents(tmp_path) == {3.0}
    assert names(tmp_path) == ["0.pt"]


def test_one_taken_name_holds_back_the_whole_step(tmp_path):
    taken = tmp_path / "train_data" / "0_1.pt"
    write_train_dump(taken, {"other": [1]}, rollout_id=0, rank=1)
    with pytest.raises(DumpError, match="another content"):
        directory(tmp_path).dump(step(0))
    assert names(tmp_path) == ["train_data/0_1.pt"]


def test_a_rename_that_fails_undoes_those_before(tmp_path):
    """The second temporary file is gone when its turn comes."""
    first, second = tmp_path / "a.pt", tmp_path / "sub" / "b.pt"
    first.write_bytes(b"before")
    with (
        pytest.raises(DumpError),
        DumpTransaction(overwrite=True) as transaction,
    ):
        transaction.file(first).write(b"after")
        last = transaction.file(second)
        last.write(b"new")
        last.finish()
        last.temporary.unlink()
        transaction.commit()
    assert first.read_bytes() == b"before"
    assert names(tmp_path) == ["a.pt"]


def test_what_is_not_committed_is_gone(tmp_path):
    with DumpTransaction() as transaction:
        transaction.file(tmp_path / "a.pt").write(b"x")
        with pytest.raises(DumpError, match="same name"):
            transaction.file(tmp_path / "a.pt")
    assert names(tmp_path) == []


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupt(num_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rollout_dump(
            tmp_path / "0.pt", samples(), rollout_id=0, on_progress=interrupt
        )
    assert names(tmp_path) == []
