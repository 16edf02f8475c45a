"""A record's files join row by row even when some samples were not trained on."""

from __future__ import annotations

import numpy as np

from relax.controller.rollout import RolloutInHand


def test_log_probs_of_trained_samples_keep_their_rows():
    rollout = RolloutInHand(rollout_id=3, weights_version=0, fingerprint="")
    rollout.columns = {"sample_index": [10, 11, 12]}
    values = np.array([-0.5], dtype=np.float32)
    empty = {name: [None] for name in ("ref_log_probs", "entropy", "returns")}
    rows = {
        "rollout_id": [3],
        "sample_index": [11],
        "tokens_kept": [True],
        "log_probs": [values],
        "advantages": [values],
        "log_prob_mean": [-0.5],
        **empty,
    }
    aligned = rollout.add_columns(rows)
    assert aligned["sample_index"] == [10, 11, 12]
    assert aligned["rollout_id"] == [3, 3, 3]
    assert aligned["log_prob_mean"] == [None, -0.5, None]
    assert aligned["log_probs"][1] is values
    assert aligned["log_probs"][0] is None
    assert aligned["tokens_kept"] == [True, True, True]
    assert rollout.columns["log_probs"][1] is values
    assert "ref_log_probs" not in rollout.columns
