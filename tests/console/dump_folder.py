"""Dumps in a folder, as `d` writes them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from relax.dump.manifest import WeightsNote
from relax.dump.write import RunFacts, StepToDump, dump_step

WRITTEN_AT = 1_800_000_000.0


def dump_rollouts(folder: Path, *rollouts: int) -> None:
    """Writes one small dump a rollout, with one rank, all at the same moment."""
    facts = RunFacts(
        run_id="tiny-1",
        attempt=1,
        arguments={"lr": {"value": 1e-6, "origin": "flag"}},
        world_size=1,
    )
    for rollout_id in rollouts:
        step = StepToDump(
            rollout_id=rollout_id,
            weights=WeightsNote(version=rollout_id, fingerprint="f00d"),
            samples=[_sample(number) for number in range(4)],
            ranks={0: {"rewards": [1.0]}},
        )
        with patch("time.time", return_value=WRITTEN_AT):
            dump_step(folder, step, facts=facts)


def _sample(number: int) -> dict[str, object]:
    return {
        "index": number,
        "group_index": 0,
        "prompt": "40 + 2 = ?",
        "tokens": [5, 6, 7, 8],
        "response": "the answer is 42",
        "response_length": 2,
        "label": "42",
        "reward": 1.0,
        "loss_mask": [1, 1],
        "rollout_log_probs": [-0.1, -0.2],
        "status": "completed",
    }
