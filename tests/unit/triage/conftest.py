"""Rollouts simulated from known distributions, healthy or with one known fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relax.triage.evidence import RolloutEvidence

VOCAB = 64


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Temperatures and faults of a simulated rollout."""

    engine_temperature: float = 1.0
    trainer_temperature: float = 1.0
    shift: int = 0
    top_p: float = 1.0
    sharpness: float = 6.0
    engine_noise: float = 3e-6
    num_samples: int = 32
    length: int = 40


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _cut(log_probs: np.ndarray, top_p: float) -> np.ndarray:
    order = np.argsort(-log_probs, -1)
    sorted_probs = np.take_along_axis(np.exp(log_probs), order, -1)
    keep = np.zeros(log_probs.shape, bool)
    below = (np.cumsum(sorted_probs, -1) - sorted_probs) < top_p
    np.put_along_axis(keep, order, below, -1)
    return _log_softmax(np.where(keep, log_probs, -1e9))


def simulated_columns(setup: Simulated, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    names = ("tokens", "rollout_log_probs", "log_probs", "entropy", "response")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    rows = np.arange(setup.length)
    for _ in range(setup.num_samples):
        logits = rng.normal(size=(setup.length, VOCAB))
        logits *= rng.uniform(0.5, setup.sharpness, size=(setup.length, 1))
        engine = _log_softmax(logits / setup.engine_temperature)
        trainer = _log_softmax(logits / setup.trainer_temperature)
        if setup.top_p < 1:
            engine = _cut(engine, setup.top_p)
        gumbel = -np.log(-np.log(rng.uniform(size=engine.shape)))
        ids = (engine + gumbel).argmax(-1)
        noise = rng.normal(size=setup.length) * setup.engine_noise
        scored = np.roll(trainer[rows, ids], setup.shift)
        columns["tokens"].append([1, 2, 3, *ids.tolist()])
        columns["rollout_log_probs"].append(np.float32(engine[rows, ids] + noise))
        columns["log_probs"].append(np.float32(scored))
        columns["entropy"].append(np.float32(-(np.exp(trainer) * trainer).sum(-1)))
        columns["response"].append(" ".join(f"w{token}" for token in ids))
    num_samples = setup.num_samples
    columns["ref_log_probs"] = list(columns["log_probs"])
    columns["response_length"] = [setup.length] * num_samples
    columns["loss_mask"] = [[1] * setup.length for _ in range(num_samples)]
    columns["sample_index"] = [100 + row for row in range(num_samples)]
    columns["group_index"] = [row // 4 for row in range(num_samples)]
    columns["reward"] = [float(row % 2) for row in range(num_samples)]
    return columns


@pytest.fixture
def simulate():
    """Makes evidence: simulate(engine_temperature=0.7, columns={...}, rollout_id=1)."""

    def make(
        *,
        columns: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
        **kw: Any,
    ) -> RolloutEvidence:
        setup = {k: kw.pop(k) for k in list(kw) if k in Simulated.__dataclass_fields__}
        table = simulated_columns(Simulated(**setup)) | (columns or {})
        table = {name: table[name] for name in table if name not in without}
        known = {"rollout_id": 0, "vocab_size": VOCAB, "precision": "float32"}
        return RolloutEvidence(columns=table, **(known | kw))

    return make
