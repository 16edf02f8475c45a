"""Decoding a foreign rollout dump against an unsafe ``torch.load`` of the same file.

    python tests/benchmarks/decode_dump.py [--samples 1024] [--tokens 8192] [--texts]

Ratios of one run on one machine, the fastest of three turns each, every turn in a
process of its own. Decoding counts from the call to the finished record: starting the
process, reading, converting and writing. ``torch.load`` counts without its imports.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from relax.dump.decode.cache import decode_cached

MIB = 1 << 20
TIMES = 3
GOAL = 0.8

LOAD = """
import json, resource, sys, time, torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
content = torch.load(sys.argv[1], weights_only=False)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"seconds": seconds, "mib": peak / 1024}))
"""

DECODE = """
import json, resource, sys, time
from pathlib import Path
from relax.dump.decode.client import decode
start = time.perf_counter()
decode(Path(sys.argv[1]), Path(sys.argv[2]))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"seconds": seconds, "mib": peak / 1024}))
"""

WRITE = """
import sys, torch, numpy as np
path, count, tokens, texts = sys.argv[1], *map(int, sys.argv[2:])
draw = np.random.default_rng(0)
response = tokens * 3 // 4
samples = []
for index in range(count):
    ids = np.minimum(draw.zipf(1.2, tokens) * 7 % 151_000, 150_999).tolist()
    sample = {
        "group_index": index // 8, "index": index, "prompt": "a prompt " * 40,
        "tokens": ids, "response": "a word and more " * (response // 4),
        "response_length": response, "label": "7", "reward": float(index % 2),
        "loss_mask": [1] * response, "weight_versions": ["3"],
        "rollout_log_probs": (-draw.random(response)).tolist(), "status": "completed",
        "metadata": {"stop_reason": "stop"}, "remove_sample": False,
    }
    if texts:
        sample["decoded_tokens"] = [f"t{i}" for i in ids]
    samples.append(sample)
torch.save({"rollout_id": 0, "samples": samples}, path)
"""


def run(program: str, *words: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return json.loads(done.stdout) if done.stdout else {}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--texts", action="store_true", help="with decoded_tokens")
    parser.add_argument("--folder", type=Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        path, out = Path(folder) / "0.pt", Path(folder) / "out"
        run(WRITE, path, words.samples, words.tokens, int(words.texts))
        size = path.stat().st_size / MIB
        print(f"{words.samples} x {words.tokens} tokens, {size:.0f} MiB")
        loads, decodes = [], []
        for _ in range(TIMES):
            loads.append(run(LOAD, path))
            decodes.append(run(DECODE, path, out))
            shutil.rmtree(out)
        load = min(loads, key=lambda turn: turn["seconds"])
        ours = min(decodes, key=lambda turn: turn["seconds"])
        print(f"torch.load  {load['seconds']:6.2f} s  {load['mib']:6.0f} MiB")
        print(f"decode      {ours['seconds']:6.2f} s  {ours['mib']:6.0f} MiB in all")
        ratio = load["seconds"] / ours["seconds"]
        print(f"ratio       {ratio:6.2f}    (goal: at least {GOAL})")
        cache = Path(folder) / "cache"
        decode_cached(path, cache_dir=cache)
        start = time.perf_counter()
        decode_cached(path, cache_dir=cache)
        print(f"second opening {(time.perf_counter() - start) * 1000:.1f} ms")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
