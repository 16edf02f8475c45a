"""What observation costs: rollouts observed and not, alternating in one run.

    python tests/benchmarks/observe_cost.py --rollouts 200

Runs the tiny example with ``--observe-every 2``, drops the first pairs (warm-up), and
prints the median of the paired ratios observed / unobserved of a whole rollout, with a
bootstrapped 95 % interval, as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from relax.events.tail import EventTail  # noqa: E402
from relax.events.types import RolloutFinished  # noqa: E402

WARM_UP_PAIRS = 3
RESAMPLES = 10_000


def rollout_seconds(run_dir: Path) -> dict[int, float]:
    """Wall time of each rollout, seconds."""
    return {
        event.payload.rollout_id: event.payload.metrics["perf/step_time"].value
        for event in EventTail(run_dir).poll()
        if isinstance(event.payload, RolloutFinished)
    }


def paired_ratios(seconds: dict[int, float]) -> np.ndarray:
    """Observed over unobserved for each pair of neighbours (even ids are observed)."""
    ids = [i for i in sorted(seconds) if i % 2 == 0 and i + 1 in seconds]
    return np.array([seconds[i] / seconds[i + 1] for i in ids[WARM_UP_PAIRS:]])


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--run-dir", type=Path)
    options = parser.parse_args()
    run_dir = options.run_dir or Path(tempfile.mkdtemp(prefix="relax-observe-")) / "run"
    if not (run_dir / "events").exists():
        subprocess.run(
            [
                sys.executable,
                ROOT / "relax/entrypoints/train.py",
                *("--config", ROOT / "examples/tiny_arith/demo.yaml"),
                *("--run-dir", run_dir, "--num-rollout", str(options.rollouts)),
                *("--observe-every", "2", "--eval-interval", "100000"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    seconds = rollout_seconds(run_dir)
    ratios = paired_ratios(seconds)
    random = np.random.default_rng(0)
    picks = random.integers(0, ratios.size, (RESAMPLES, ratios.size))
    low, high = np.percentile(np.median(ratios[picks], axis=1), [2.5, 97.5])
    result = {
        "rollouts": len(seconds),
        "pairs": int(ratios.size),
        "median_ratio": round(float(np.median(ratios)), 4),
        "interval_95": [round(float(low), 4), round(float(high), 4)],
        "median_seconds_unobserved": round(
            float(np.median([s for i, s in seconds.items() if i % 2])), 4
        ),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
