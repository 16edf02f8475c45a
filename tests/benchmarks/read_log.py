"""Speed of reading a log: python tests/benchmarks/read_log.py [--gigabytes 1.0]

The log is one of an engine that talks much: batch lines, requests, progress bars, the
numbers of every rollout with a long response, and now and then an error. Wants at least
100 MB/s on one core, and memory that does not grow with the log.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from relax.dump.logs.read import read_log
from relax.triage.log_registry import run_log_rules
from relax.triage.log_signatures import MARKS
from relax_tui.checking.logs import log_evidence, numbers_of

WANTED_MB_PER_SECOND = 100.0
BLOCK_ROLLOUTS = 20


def block(first: int, seed: int) -> bytes:
    """Some rollouts of a log, about 8 MB."""
    draw = random.Random(seed)
    lines = []
    for number in range(first, first + BLOCK_ROLLOUTS):
        lines.append(f"Start rollout {number}/99999")
        for _ in range(2_000):
            lines += [decode_line(draw), request_line(draw)]
        response = " ".join(f"word{draw.randrange(9999)}" for _ in range(4_000))
        lines.append(f"Finish rollout: ['{response}'], label: 42, reward: 0.5")
        pairs = ", ".join(f"'rollout/k{n}': {draw.random()!r}" for n in range(40))
        lines.append(
            f"rollout {number}: {{'rollout/raw_reward': {draw.random()!r}, {pairs}}}"
        )
        lines.append(f"step {number}: {{'train/grad_norm': np.float64(0.4)}}")
        if draw.random() < 0.2:
            lines.append("RewardError: TimeoutError: the verifier took 10 s")
    return ("\n".join(lines) + "\n").encode()


def decode_line(draw: random.Random) -> str:
    """What an engine says every second, with Ray's prefix and colours."""
    clock = f"10:{draw.randrange(60):02d}:{draw.randrange(60):02d}"
    return (
        f"\x1b[36m(SGLangEngine pid={draw.randrange(9999)}, ip=10.0.0.7)\x1b[0m "
        f"[2026-03-01 {clock} TP0] Decode batch. #running-req: {draw.randrange(256)}, "
        f"#token: {draw.randrange(99999)}, token usage: {draw.random():.2f}, "
        f"gen throughput (token/s): {draw.random() * 9e3:.2f}, #queue-req: 0"
    )


def request_line(draw: random.Random) -> str:
    """What a server says of each request."""
    client = f"10.0.0.9:{draw.randrange(65536)}"
    return f'INFO:     {client} - "POST /generate HTTP/1.1" 200 OK'


def main() -> int:
    """Writes a log, reads it, says how fast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.2)
    wanted = int(parser.parse_args().gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        size = first = 0
        with path.open("wb") as stream:
            while size < wanted:
                size += stream.write(block(first, first))
                first += BLOCK_ROLLOUTS
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, cpu = time.perf_counter(), time.process_time()
        story = read_log(path, marks=MARKS)
        seconds = time.perf_counter() - started
        cpu = time.process_time() - cpu
        verdicts = run_log_rules(log_evidence([story], arguments={}))
        rollouts = len(numbers_of(story))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    speed = size / 1e6 / cpu
    print(
        f"{size / 1e6:.0f} MB, {story.lines:,} lines, {rollouts} rollouts,"
        f" {len(verdicts)} verdicts: {seconds:.2f} s, {cpu:.2f} s of processor,"
        f" {speed:.0f} MB/s, memory +{grown:.0f} MiB"
    )
    return 0 if speed >= WANTED_MB_PER_SECOND else 1


if __name__ == "__main__":
    raise SystemExit(main())
