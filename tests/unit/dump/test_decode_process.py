"""Decoding in its own process: limits, ends of all kinds, and what is kept."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from foreign_dumps import (
    Ranks,
    make_truth,
    rollout_sample,
    save,
    save_relax_train,
    save_rollout,
    stage,
)

from relax.dump.decode.cache import decode_cached
from relax.dump.decode.client import Progress, decode
from relax.dump.decode.stepfiles import step_files
from relax.errors import DumpError, DumpMissing, DumpRefused, DumpTruncated

MIB = 1 << 20


@pytest.fixture(scope="module")
def large_dump(tmp_path_factory):
    """About 12 MB that take a second or so."""
    (one,) = make_truth(1, longest=400)
    samples = [rollout_sample(one, index=number) for number in range(1500)]
    folder = tmp_path_factory.mktemp("large")
    return save(folder / "3.pt", {"rollout_id": 3, "samples": samples})


def test_a_record_appears_whole(tmp_path):
    path = save_rollout(tmp_path / "3.pt", make_truth(3))
    decoded = decode(path, tmp_path / "deep" / "out")
    assert decoded.folder == tmp_path / "deep" / "out"
    names = {file.name for file in decoded.folder.iterdir()}
    assert names == {"samples.arrow", "decoded.json", "vocab-dump.arrow"}
    assert len(stage(decoded, "samples")) == 3
    with pytest.raises(DumpError, match="exists already"):
        decode(path, tmp_path / "deep" / "out")


def test_progress_counts_bytes_of_all_files(tmp_path, large_dump):
    seen: list[Progress] = []
    decode(large_dump, tmp_path / "out", on_progress=seen.append)
    assert seen
    assert seen == sorted(seen, key=lambda progress: progress.done)
    assert {progress.total for progress in seen} == {large_dump.stat().st_size}
    assert seen[-1] == Progress(done=seen[-1].total, total=seen[-1].total, samples=1500)


def test_cancelling_leaves_nothing(tmp_path, large_dump):
    cancel = threading.Event()
    with pytest.raises(DumpError, match="cancelled"):
        decode(
            large_dump,
            tmp_path / "out",
            on_progress=lambda _: cancel.set(),
            cancel=cancel,
        )
    assert list(tmp_path.iterdir()) == []


def test_who_cancels_on_the_last_progress_gets_no_record(tmp_path):
    """A small file: its only progress and its result come in one piece."""
    path = save_rollout(tmp_path / "3.pt", make_truth(1))
    cancel = threading.Event()
    with pytest.raises(DumpError, match="cancelled"):
        decode(path, tmp_path / "o", on_progress=lambda _: cancel.set(), cancel=cancel)
    assert list(tmp_path.iterdir()) == [path]


def test_too_little_memory_is_one_sentence(tmp_path):
    (one,) = make_truth(1)
    long = rollout_sample(one, session_id="x" * (64 * MIB))
    path = save(tmp_path / "3.pt", {"rollout_id": 3, "samples": [long]})
    with pytest.raises(DumpRefused, match=r"more memory than the limit of 64 MiB"):
        decode(path, tmp_path / "out", max_memory=64 * MIB)


def test_too_little_time_is_one_sentence(tmp_path, large_dump):
    with pytest.raises(DumpRefused, match=r"longer than the limit of 0\.2 s"):
        decode(large_dump, tmp_path / "out", time_limit=0.2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "ran out of memory"), (signal.SIGSEGV, "crashed .*SIGSEGV")],
)
def test_a_decoder_that_dies_is_one_sentence(tmp_path, large_dump, number, words):
    # A thread looks for the process: progress may be told only when it is all but done.
    killer = threading.Thread(target=_kill_the_decoder, args=(number,))
    killer.start()
    with pytest.raises(DumpRefused, match=words):
        decode(large_dump, tmp_path / "out")
    killer.join()
    assert list(tmp_path.iterdir()) == []


def _kill_the_decoder(number: signal.Signals) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        tasks = Path("/proc/self/task").glob("*/children")
        for pid in {pid for task in tasks for pid in task.read_text().split()}:
            if b"relax.entrypoints.decode" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), number)
                return
        os.sched_yield()


def test_a_truncated_file_is_one_sentence(tmp_path, large_dump):
    path = tmp_path / "3.pt"
    path.write_bytes(large_dump.read_bytes()[: 1 << 20])
    with pytest.raises(DumpTruncated, match="no readable zip directory"):
        decode(path, tmp_path / "out")


def test_a_folder_of_one_step(tmp_path):
    truth = make_truth(4)
    save_rollout(tmp_path / "dump" / "rollout_data" / "3.pt", truth)
    save_relax_train(tmp_path / "dump" / "train_data", truth, Ranks(dp=2))
    decoded = decode(tmp_path / "dump", tmp_path / "out")
    assert decoded.stages == ("samples", "logprobs")
    assert decoded.coverage["ranks"] == [0, 1]


def test_a_folder_of_several_steps_names_them(tmp_path):
    for rollout_id in range(9):
        (tmp_path / f"{rollout_id}.pt").touch()
    with pytest.raises(DumpError, match=r"0, 1, 2, 3, 4, 5 and 3 more"):
        step_files(tmp_path)
    with pytest.raises(DumpMissing, match="no dumps"):
        step_files([tmp_path / "0.pt", _empty(tmp_path / "empty")])
    with pytest.raises(DumpMissing, match="no such file"):
        step_files(tmp_path / "10.pt")


def _empty(folder):
    folder.mkdir()
    return folder


def test_what_was_decoded_is_kept_until_it_changes(tmp_path):
    cache = tmp_path / "cache"
    path = save_rollout(tmp_path / "3.pt", make_truth(3))
    first = decode_cached(path, cache_dir=cache)
    inode = (first.folder / "samples.arrow").stat().st_ino
    second = decode_cached(path, cache_dir=cache)
    assert second == first
    assert (second.folder / "samples.arrow").stat().st_ino == inode
    save_rollout(tmp_path / "3.pt", make_truth(4))
    third = decode_cached(path, cache_dir=cache)
    assert third.num_samples == 4
    (third.folder / "decoded.json").write_text("{")
    assert decode_cached(path, cache_dir=cache).num_samples == 4


def test_the_decoder_needs_no_torch(tmp_path):
    path = save_rollout(tmp_path / "3.pt", make_truth(2))
    program = (
        "import sys; from pathlib import Path\n"
        "from relax.dump.decode.messages import DecodeRequest\n"
        "from relax.dump.decode.process import decode_here\n"
        f"into = Path({str(tmp_path / 'out')!r}); into.mkdir()\n"
        f"request = DecodeRequest(paths=({str(path)!r},), into=str(into),\n"
        "    reward_key=None, max_memory=1 << 30, time_limit=None)\n"
        "decode_here(request, lambda _: None)\n"
        "heavy = ('torch', 'ray', 'megatron', 'sglang', 'transformers')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert ast.literal_eval(done.stdout) == []
