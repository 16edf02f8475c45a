"""Measures the console on a pty: cold start, key to paint, idle bytes, memory.

    python tests/benchmarks/console_latency.py [--starts N] [--keys N] [--idle SECONDS]

A scripted run folder is written first; while keys are pressed a writer appends events
and records to it. Prints one JSON document; the limits stand beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/console"), str(ROOT / "tests/terminal")]

from pty_session import PtySession, console_session  # noqa: E402
from screens import make_run  # noqa: E402
from scripted_run import Script, ScriptedRun  # noqa: E402

from relax.events.types import Heartbeat  # noqa: E402

QUIET_SECONDS = 0.03
HEARTBEAT_SECONDS = 5.0


def first_paint(run_dir: Path, state: Path) -> float:
    """Seconds from the start to the first visible text."""
    console = console_session("attach", run_dir, home=state)
    while not console.text.strip():
        console.read(0.01)
    seconds = time.monotonic() - console.started
    console.settle(0.5)
    console.press("q")
    console.wait_end()
    console.close()
    return seconds


def key_to_paint(console: PtySession, presses: int) -> list[float]:
    """Milliseconds from a key to the last byte of the burst that it painted.

    Bytes are stamped as they come and emulated afterwards, so that the emulator does
    not delay what it measures.
    """
    found = []
    for number in range(presses):
        console.read(0.15)
        start = time.monotonic()
        console.press("j" if number % 20 < 10 else "k")
        last = None
        content = b""
        while select.select([console.master], [], [], QUIET_SECONDS if last else 2.0)[
            0
        ]:
            content += os.read(console.master, 65536)
            last = time.monotonic()
        console.feed(content)
        if last is not None:
            found.append((last - start) * 1000)
    return found


def anonymous_memory(pid: int) -> float:
    """Private anonymous memory of a process, in MB."""
    for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if row.startswith("Anonymous:"):
            return int(row.split()[1]) / 1000
    raise OSError("the kernel does not say")


def without_news(console: PtySession, run: ScriptedRun, seconds: float) -> int:
    """Bytes sent while a run gives nothing but its heartbeat."""
    sent, left = 0, seconds
    while left > 0:
        run.events.append(Heartbeat())
        sent += len(console.read(min(left, HEARTBEAT_SECONDS)))
        left -= HEARTBEAT_SECONDS
    return sent


def idle_bytes(folder: Path, seconds: float) -> dict[str, int]:
    """Bytes sent while nothing happens, by the state of the run; all at once."""
    consoles = {}
    for story in ("paused", "finished", "lost"):
        make_run(folder / story, story).close()
        consoles[story] = console_session("attach", folder / story, home=folder)
    for console in consoles.values():
        console.wait_for("worst first", 60)
    for console in consoles.values():
        console.settle(1.0)
    end = time.monotonic() + seconds
    sent = dict.fromkeys(consoles, 0)
    while time.monotonic() < end:
        for story, console in consoles.items():
            sent[story] += len(console.read(0.1))
    for console in consoles.values():
        console.press("q")
        console.wait_end()
        console.close()
    return sent


def keep_writing(run: ScriptedRun, begin: int, stop: threading.Event) -> None:
    """Adds a rollout every second."""
    rollout_id = begin
    while not stop.wait(1.0):
        run.rollout(rollout_id)
        rollout_id += 1


def measure(starts: int, keys: int, idle: float) -> dict[str, object]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="relax-console-"))
    run = ScriptedRun(folder / "run", Script(samples=64, group=8)).open()
    for rollout_id in range(20):
        run.rollout(rollout_id)
    run.flush()
    paints = [first_paint(folder / "run", folder / "state") for _ in range(starts)]
    console = console_session("attach", folder / "run", home=folder)
    console.wait_for("worst first")
    stop = threading.Event()
    writer = threading.Thread(target=keep_writing, args=(run, 20, stop))
    writer.start()
    # An older rollout stays in view, so that each key has something to move in.
    console.press("[[[")
    console.settle(0.5, seconds=3)
    presses = key_to_paint(console, keys)
    stop.set()
    writer.join()
    console.settle(2.0)
    running = without_news(console, run, idle) / idle
    run.finish(21)
    run.close()
    console.wait_for("finished")
    memory = anonymous_memory(console.process.pid)
    console.press("q")
    console.wait_end()
    console.close()
    ordered = sorted(presses)
    return {
        "first_paint_s": {"p50": statistics.median(paints), "limit": 1.0},
        "key_to_paint_ms": {
            "p50": statistics.median(ordered),
            "p95": ordered[int(len(ordered) * 0.95)],
            "limit_p95": 50,
            "painted": len(ordered),
            "pressed": keys,
        },
        "running_without_news_bytes_per_s": {"value": running, "limit": 100},
        "idle_bytes": {**idle_bytes(folder, idle), "seconds": idle, "limit": 0},
        "anonymous_memory_mb": {"value": memory, "limit": 120},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--idle", type=float, default=60.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.starts, options.keys, options.idle), indent=2))
