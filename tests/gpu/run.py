"""What must be seen on a GPU, section by section; each writes its own JSON at once.

    python -m tests.gpu.run --checkpoint PATH [--only kit,transformer_engine]

PATH is SmolLM2-135M-Instruct as `examples/smollm2/make.py` writes it. A section takes
at most eight minutes; what the host lacks is reported as not run, never as passed.
Results of several calls lie side by side, named by section; the table at the end shows
them all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.events.tail import EventTail
from relax.events.types import (
    RunFailed,
    RunFinished,
    StageFinished,
    StartupProgress,
    TrainStep,
    VerdictGiven,
    WeightsUpdated,
)
from relax.measure.reduction import metric_values

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "megatron-core", "transformer-engine", "sglang", "ray")
SECTION_SECONDS = 480
SHAPE = {
    "--rollout-batch-size": 16,
    "--n-samples-per-prompt": 8,
    "--global-batch-size": 128,
    "--rollout-max-response-len": 256,
    "--rollout-max-context-len": 1024,
    "--max-tokens-per-gpu": 16384,
    "--actor-num-nodes": 1,
    "--actor-num-gpus-per-node": 1,
    "--num-gpus-per-node": 1,
    "--rollout-num-gpus": 1,
    "--rollout-backend": "sglang",
    "--sglang-mem-fraction-static": 0.3,
    "--object-store-bytes": 4 * 2**30,
    "--ref-mode": "resident",
}
FIRST_STEP = (
    "logprob_ref/tokens",
    "logprob_ref/unequal",
    "logprob_ref/max_abs",
    "rollout/kl",
    "logprob_rollout/p50",
    "logprob_rollout/p99",
    "logprob_rollout/max_abs",
    "logprob_rollout/slope",
)
SWITCHES = ("--colocate", "--use-dynamic-batch-size", "--bf16", "--no-control")


class NotRun(Exception):
    """The host lacks what the section needs."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all sections are given."""

    checkpoint: Path
    rollouts: int
    flags: tuple[str, ...]


def kit(setting: Setting) -> dict[str, Any]:
    """A Transformer Engine kernel, and what the host is."""
    import torch

    if not torch.cuda.is_available():
        raise NotRun("torch sees no GPU")
    try:
        import transformer_engine.pytorch as te
    except ImportError as error:
        raise NotRun(f"no Transformer Engine: {error}") from error
    layer = te.Linear(64, 64, params_dtype=torch.bfloat16).cuda()
    result = layer(torch.ones(8, 64, dtype=torch.bfloat16, device="cuda"))
    return {
        "gpu": torch.cuda.get_device_name(0),
        "gpu_gib": torch.cuda.get_device_properties(0).total_memory / 2**30,
        "te_linear_finite": bool(torch.isfinite(result).all().item()),
    }


def transformer_engine(setting: Setting) -> dict[str, Any]:
    """Colocated, bf16, Transformer Engine layers."""
    return colocated(setting, "--transformer-impl", "transformer_engine")


def local_layers(setting: Setting) -> dict[str, Any]:
    """The same with megatron-core's own layers."""
    return colocated(setting, "--transformer-impl", "local")


SECTIONS: Mapping[str, Callable[[Setting], dict[str, Any]]] = {
    "kit": kit,
    "transformer_engine": transformer_engine,
    "local_layers": local_layers,
}


def colocated(setting: Setting, *flags: str) -> dict[str, Any]:
    """Runs GRPO on one GPU, SGLang beside megatron-core."""
    with tempfile.TemporaryDirectory(prefix="relax-gpu-") as place:
        run_dir = Path(place) / "run"
        words = [str(word) for pair in SHAPE.items() for word in pair]
        command = [
            *(sys.executable, str(ROOT / "relax" / "entrypoints" / "train.py")),
            *("--config", str(ROOT / "examples" / "smollm2" / "demo.yaml")),
            *("--hf-checkpoint", str(setting.checkpoint)),
            *("--ref-load", str(setting.checkpoint)),
            *("--run-dir", str(run_dir), "--num-rollout", str(setting.rollouts)),
            *words,
            *SWITCHES,
            *flags,
            *setting.flags,
        ]
        # The host's MemTotal may read far too low for Ray's own guard.
        environment = {**os.environ, "RAY_memory_monitor_refresh_ms": "0"}
        with (Path(place) / "out").open("w") as output:
            code = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SECTION_SECONDS,
                check=False,
                env=environment,
                cwd=ROOT,
            ).returncode
        words_at_end = (Path(place) / "out").read_text()[-1500:]
        return {"flags": flags, "exit_code": code, **measured(run_dir, words_at_end)}


def measured(run_dir: Path, last_words: str) -> dict[str, Any]:
    """What a run's events say."""
    payloads = [event.payload for event in EventTail(run_dir).poll()]

    def of(kind: type) -> list[Any]:
        return [payload for payload in payloads if isinstance(payload, kind)]

    stages: dict[str, list[float]] = {}
    for ended in of(StageFinished):
        stages.setdefault(str(ended.stage), []).append(ended.seconds)
    scored = [e for e in of(StageFinished) if str(e.stage) == "log_probs"]
    numbers = [metric_values(event.metrics) for event in scored]
    steps = [metric_values(event.metrics) for event in of(TrainStep)]
    updates = of(WeightsUpdated)
    rewarded = [e for e in of(StageFinished) if str(e.stage) == "reward"]
    return {
        "finished": bool(of(RunFinished)),
        "failed": [event.what for event in of(RunFailed)],
        "last_words": "" if of(RunFinished) else last_words,
        "startup_seconds": max((e.seconds for e in of(StartupProgress)), default=None),
        "first_step": {key: numbers[0].get(key) for key in FIRST_STEP}
        if numbers
        else {},
        "grad_norm": [step.get("train/grad_norm") for step in steps],
        "logprob_abs_diff": [
            step.get("train/train_rollout_logprob_abs_diff") for step in steps
        ],
        "reward": [
            metric_values(e.metrics).get("rollout/raw_reward") for e in rewarded
        ],
        "updates": len(updates),
        "updates_equal": sum(u.fingerprint == u.engine_fingerprint for u in updates),
        "update_seconds": [round(u.seconds, 3) for u in updates],
        "stage_seconds": {
            name: [round(each, 3) for each in all_] for name, all_ in stages.items()
        },
        "verdicts": sorted(
            {
                (v.verdict["rule"], v.verdict["status"])
                for v in of(VerdictGiven)
                if v.verdict["status"] in ("FAIL", "WARN")
            }
        ),
    }


def versions() -> dict[str, str | None]:
    """Of the packages that matter; None where one is missing."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return {"python": sys.version.split()[0], **found}


def main() -> int:
    """Runs the sections that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("flags", nargs="*", help="more flags of train.py, after --")
    given = parser.parse_args()
    setting = Setting(
        checkpoint=given.checkpoint,
        rollouts=given.rollouts,
        flags=tuple(given.flags),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in given.only.split(","):
        began = time.time()
        try:
            result = {"ran": True, **SECTIONS[name](setting)}
        except NotRun as reason:
            result = {"ran": False, "why": str(reason)}
        except subprocess.TimeoutExpired:
            result = {"ran": True, "failed": [f"took over {SECTION_SECONDS} s"]}
        result |= {
            "section": name,
            "date": time.strftime("%Y-%m-%d"),
            "seconds": round(time.time() - began, 1),
            "versions": versions(),
        }
        text = json.dumps(result, indent=1, default=str)
        (given.out / f"{name}.json").write_text(text + "\n")
        worst |= bool(result.get("failed") or result.get("exit_code"))
    table(given.out)
    return worst


def table(folder: Path) -> None:
    """All results that there are, a line each."""
    width = shutil.get_terminal_size((100, 24)).columns
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        said = "not run: " + result["why"] if not result["ran"] else ""
        first = result.get("first_step") or {}
        if first:
            said = (
                f"{len(result['grad_norm'])} steps, first step unequal "
                f"{first['logprob_ref/unequal']:.0f} of "
                f"{first['logprob_ref/tokens']:.0f}, updates equal "
                f"{result['updates_equal']}/{result['updates']}"
            )
        said = said or str(result.get("failed") or "ok")
        sys.stdout.write(f"{path.stem:20} {result['seconds']:7.1f} s  {said}"[:width])
        sys.stdout.write("\n")


if __name__ == "__main__":
    sys.exit(main())
