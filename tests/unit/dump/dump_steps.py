"""A small step to dump, for tests and for their child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from relax.dump.manifest import MicroBatch, WeightsNote
from relax.dump.write import ModelFiles, RunFacts, StepToDump


def facts(
    checkpoint: Path | None = None, *, run_id: str = "run-1", attempt: int = 1
) -> RunFacts:
    return RunFacts(
        run_id=run_id,
        attempt=attempt,
        arguments={
            "lr": {"value": 1e-6, "origin": "flag"},
            "seed": {"value": 1234, "origin": "default"},
            "wandb_key": {"value": "0123456789abcdef", "origin": "flag"},
        },
        environment={"OMP_NUM_THREADS": "1"},
        versions={"torch": "2.13.0"},
        git={"commit": "abc", "dirty": False},
        layout={"tp": 1, "pp": 1, "dp": 2},
        world_size=2,
        model=None if checkpoint is None else ModelFiles.of(checkpoint),
    )


def samples(
    count: int = 4, *, tokens: int = 30, shift: int = 0
) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "group_index": index // 2,
            "tokens": [shift + token for token in range(tokens)],
            "response_length": tokens // 2,
            "reward": 1.0,
            "status": "completed",
        }
        for index in range(count)
    ]


def step(
    rollout_id: int = 0, *, ranks: int = 2, tokens: int = 30, shift: int = 0
) -> StepToDump:
    columns = {
        rank: {
            "log_probs": [np.full(tokens // 2, -0.5 - shift, np.float32)] * 2,
            "sample_indices": [2 * rank, 2 * rank + 1],
        }
        for rank in range(ranks)
    }
    return StepToDump(
        rollout_id=rollout_id,
        weights=WeightsNote(version=rollout_id, fingerprint="f00d"),
        samples=samples(tokens=tokens, shift=shift),
        ranks=columns,
        micro_batches=(
            MicroBatch(step_id=0, rank=0, number=0, padded_length=32, samples=(0, 1)),
        ),
    )


def names(folder: Path) -> list[str]:
    """Every file below, relative, sorted."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
