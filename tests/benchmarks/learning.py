"""Does it learn? Reward curves of the tiny example over seeds, and of shuffled rewards.

    python tests/benchmarks/learning.py --seeds 1 2 3 --shuffled

Each run is the demo for 100 rollouts with another ``--rollout-seed`` and ``--seed``.
Prints, as JSON, the mean reward of the first and the last five rollouts, the first
rollout from which a five-rollout mean exceeds 0.85, and held-out accuracy before and
after.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from relax.events.tail import EventTail  # noqa: E402
from relax.events.types import RolloutFinished, Stage, StageFinished  # noqa: E402

EXAMPLE = ROOT / "examples" / "tiny_arith"
PATHS = ("hf-checkpoint", "ref-load", "prompt-data")
WINDOW = 5
GOAL = 0.85


def demo_flags() -> list[str]:
    """The demo's settings as flags, the reward left out: it cannot be named twice."""
    settings = yaml.safe_load((EXAMPLE / "demo.yaml").read_text())
    flags: list[str] = []
    for name, value in settings.items():
        if name not in ("rm-type", "eval-prompt-data") and value is not False:
            words = value if isinstance(value, list) else [value]
            places = [EXAMPLE / str(w) if name in PATHS else w for w in words]
            flags += [f"--{name}", *(str(p) for p in places if p is not True)]
    return flags


def run(run_dir: Path, *flags: str) -> None:
    """One run of the demo."""
    command = [sys.executable, ROOT / "relax/entrypoints/train.py", *demo_flags()]
    command += ["--eval-prompt-data", "heldout", EXAMPLE / "heldout.jsonl"]
    command += ["--run-dir", run_dir, *flags]
    command += ["--no-skip-eval-before-train"]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def figures(run_dir: Path) -> dict[str, object]:
    """Of a finished run."""
    payloads = [event.payload for event in EventTail(run_dir).poll()]
    finished = [p for p in payloads if isinstance(p, RolloutFinished)]
    updates = [
        p
        for p in payloads
        if isinstance(p, StageFinished) and p.stage is Stage.UPDATE_WEIGHTS
    ]
    reward = np.array([f.metrics["rollout/raw_reward"].value for f in finished])
    means = np.convolve(reward, np.ones(WINDOW) / WINDOW, mode="valid")
    above = np.flatnonzero(means > GOAL)
    heldout = [
        u.metrics["eval/heldout"].value for u in updates if "eval/heldout" in u.metrics
    ]
    seconds = [f.metrics["perf/step_time"].value for f in finished]
    return {
        "rollouts": len(finished),
        "first_reward": round(float(reward[0]), 3),
        "first_five": round(float(means[0]), 3),
        "last_five": round(float(means[-1]), 3),
        "best_five": round(float(means.max()), 3),
        "above_0.85_from": int(above[0]) if above.size else None,
        "heldout": [round(value, 3) for value in heldout],
        "median_rollout_seconds": round(float(np.median(seconds)), 2),
    }


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    shuffled = [
        "--custom-rm-path",
        "tests.benchmarks.shuffled_reward.reward",
        "--group-rm",
    ]
    runs = {
        f"seed {seed}": [
            *("--rm-type", "last_number"),
            *("--seed", str(seed), "--rollout-seed", str(seed)),
        ]
        for seed in options.seeds
    }
    if options.shuffled:
        runs["shuffled"] = shuffled
    results = {}
    for name, flags in runs.items():
        run_dir = Path(tempfile.mkdtemp(prefix="relax-learning-")) / "run"
        run(run_dir, "--num-rollout", str(options.rollouts), *flags)
        results[name] = figures(run_dir)
        print(json.dumps({name: results[name]}), flush=True)


if __name__ == "__main__":
    main()
