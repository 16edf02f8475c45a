"""Writing a dump against ``torch.save``, and a record against the bare disk.

    python tests/benchmarks/write_dump.py --samples 1024 --tokens 8192 --folder DIR

Ratios of one run on one machine; the fastest of four turns, each writer in processes
of its own, so that its peak memory is its own. Memory is what the writer added to the
lists that it was given.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relax.dump.write import write_rollout_dump
from relax.records.schema import RecordMetadata, StageFile
from relax.records.write import write_stage

MIB = 1 << 20
BARE_MIB = 128
TIMES = 2
GOALS = {
    "dump, times torch.save": (4.0, "at least"),
    "dump, extra MiB": (64.0, "at most"),
    "record, part of the disk's rate": (0.6, "at least"),
}


def make_samples(count: int, tokens: int) -> list[dict[str, Any]]:
    """Samples as upstream's ``to_dict`` gives them, three quarters response."""
    draw = random.Random(0)
    response = tokens * 3 // 4
    text = "a word and another one " * (tokens // 6)
    return [
        {
            "group_index": index // 8,
            "index": index,
            "prompt": f"{index} {text[:tokens]}",
            "tokens": [draw.randrange(150_000) for _ in range(tokens)],
            "response": f"{index} {text}",
            "response_length": response,
            "label": "42",
            "reward": 1.0,
            "loss_mask": [1] * response,
            "weight_versions": ["3"],
            "rollout_log_probs": [-draw.random() for _ in range(response)],
            "status": "completed",
            "metadata": {"stop_text": "<eos>", "turns": [1, 2, 3]},
            "remove_sample": False,
        }
        for index in range(count)
    ]


def write_ours(samples: list[dict[str, Any]], path: Path) -> int:
    return write_rollout_dump(path, samples, rollout_id=0).bytes


def write_torch(samples: list[dict[str, Any]], path: Path) -> int:
    import torch

    with path.open("wb") as stream:
        torch.save({"rollout_id": 0, "samples": samples}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    return path.stat().st_size


def write_record(samples: list[dict[str, Any]], path: Path) -> int:
    rows = {
        "rollout_id": [0] * len(samples),
        "sample_index": [sample["index"] for sample in samples],
        "group_index": [sample["group_index"] for sample in samples],
        "status": [sample["status"] for sample in samples],
        "reward": [sample["reward"] for sample in samples],
        "prompt": [sample["prompt"] for sample in samples],
        "response": [sample["response"] for sample in samples],
        "prompt_length": [
            len(sample["tokens"]) - sample["response_length"] for sample in samples
        ],
        "response_length": [sample["response_length"] for sample in samples],
        "total_length": [len(sample["tokens"]) for sample in samples],
        "tokens_kept": [True] * len(samples),
        "tokens": [sample["tokens"] for sample in samples],
        "loss_mask": [sample["loss_mask"] for sample in samples],
        "rollout_log_probs": [sample["rollout_log_probs"] for sample in samples],
    }
    metadata = RecordMetadata(
        run_id="bench", attempt=1, rollout_id=0, weights_version=0
    )
    return write_stage(path, StageFile.SAMPLES, rows, metadata).stat().st_size


def write_bare(samples: list[dict[str, Any]], path: Path) -> int:
    block, count = os.urandom(MIB), BARE_MIB
    with path.open("wb", buffering=0) as stream:
        for _ in range(count):
            stream.write(block)
        os.fsync(stream.fileno())
    return count * MIB


WRITERS: dict[str, Callable[[list[dict[str, Any]], Path], int]] = {
    "ours": write_ours,
    "torch": write_torch,
    "record": write_record,
    "bare": write_bare,
}


def as_arrays(samples: list[dict[str, Any]]) -> None:
    """Token columns as the engine keeps them: arrays, not lists."""
    kinds = {"tokens": np.int32, "loss_mask": np.int8, "rollout_log_probs": np.float32}
    for sample in samples:
        for name, kind in kinds.items():
            sample[name] = np.asarray(sample[name], dtype=kind)


def measure(name: str, count: int, tokens: int, folder: Path) -> dict[str, float]:
    """Bytes, seconds of the fastest turn, and how much memory the writer added.

    The first turn also pays for memory that the machine has not given us yet; a run
    that writes one file after the other pays for it once.
    """
    samples = make_samples(0 if name == "bare" else count, tokens)
    if name == "record":
        as_arrays(samples)
    if name == "torch":
        import torch  # noqa: F401 - its own memory is not the writer's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for turn in range(TIMES):
        begun = time.perf_counter()
        num_bytes = WRITERS[name](samples, folder / f"{name}-{turn}.pt")
        seconds.append(time.perf_counter() - begun)
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"bytes": num_bytes, "seconds": min(seconds), "extra": extra}


def in_own_process(name: str, options: argparse.Namespace, folder: Path) -> Any:
    words = ["--only", name, "--folder", str(folder)]
    words += ["--samples", str(options.samples), "--tokens", str(options.tokens)]
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--only", choices=WRITERS, default=None)
    options = parser.parse_args()
    if options.only:
        found = measure(options.only, options.samples, options.tokens, options.folder)
        print(json.dumps(found))
        return
    found: dict[str, Any] = {}
    for name in (*WRITERS, *WRITERS):
        # Twice around: other work on the machine does not meet one writer only.
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            row = in_own_process(name, options, Path(folder))
        best = found.setdefault(name, row)
        best["seconds"] = min(best["seconds"], row["seconds"])
        best["extra"] = max(best["extra"], row["extra"])
    rates = {name: row["bytes"] / MIB / row["seconds"] for name, row in found.items()}
    for name, row in found.items():
        size = row["bytes"] / MIB
        print(
            f"{name:<7} {size:8.1f} MiB {row['seconds']:7.2f} s"
            f" {rates[name]:8.1f} MiB/s {row['extra']:8.1f} MiB extra"
        )
    values = {
        "dump, times torch.save": rates["ours"] / rates["torch"],
        "dump, extra MiB": found["ours"]["extra"],
        "record, part of the disk's rate": rates["record"] / rates["bare"],
    }
    for name, value in values.items():
        goal, sense = GOALS[name]
        met = value >= goal if sense == "at least" else value <= goal
        print(f"{name}: {value:.2f} ({sense} {goal:g}: {'met' if met else 'MISSED'})")


if __name__ == "__main__":
    main()
