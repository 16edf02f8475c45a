"""A run on two ranks measures what a run on one rank measures.

One rollout from the same weights, through the driver: the layouts differ in nothing but
how the work is shared.
"""

from __future__ import annotations

import math

import pytest

from relax.events.types import RolloutFinished, RunFinished, TrainStep
from relax.measure.reduction import metric_values
from relax.records.schema import StageFile
from tests.process.runs import started

pytestmark = pytest.mark.engine

ONE_ROLLOUT = ("--num-rollout", "1")
LAYOUTS = {
    "tp2": ("--actor-num-gpus-per-node", "2", "--tensor-model-parallel-size", "2"),
    "dp2": ("--actor-num-gpus-per-node", "2", "--balance-data"),
}
OF_BITS = ("unequal", "ulp_max", "pg_loss")
"""What rounding alone decides here: engine and trainer differ by a few ulps, and the
policy loss of whole groups at ratio 1 is their advantages' sum, which is 0."""


def run_once(run_dir, *layout):
    """Metrics of one rollout on a layout, and its record's tables."""
    with started(run_dir, *ONE_ROLLOUT, *layout) as run:
        run.wait_for(RunFinished)
        assert run.end() == 0
        (rollout,) = run.of(RolloutFinished)
        (step,) = run.of(TrainStep)
        metrics = {
            **{k: v for k, v in rollout.metrics.items() if not k.startswith("perf/")},
            **step.metrics,
        }
        tables = {stage: run.record(0).table(stage) for stage in StageFile}
        return metrics, tables


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run_once(tmp_path_factory.mktemp("one") / "run")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_measure_what_one_measures(layout, alone, tmp_path):
    expected, expected_tables = alone

    metrics, tables = run_once(tmp_path / "run", *LAYOUTS[layout])

    assert set(metrics) == set(expected)
    values, one = metric_values(metrics), metric_values(expected)
    for name, value in one.items():
        if name.rsplit("/", 1)[-1] not in OF_BITS:
            bound = 1e-5 * max(1.0, abs(value))
            assert math.isclose(values[name], value, rel_tol=0, abs_tol=bound), name
    for name in ("rollout/tokens_unmasked", "logprob_rollout/tokens"):
        assert metrics[name] == expected[name]
    assert values["train/global_batch_size"] == 64

    logprobs, whole = tables[StageFile.LOGPROBS], expected_tables[StageFile.LOGPROBS]
    assert logprobs.column("sample_index") == whole.column("sample_index")
    assert logprobs.column("tokens_kept") == whole.column("tokens_kept")
    kept = logprobs.column("log_probs").to_pylist()
    assert sum(row is not None for row in kept) > 0
    for row, other in zip(kept, whole.column("log_probs").to_pylist(), strict=True):
        if row is not None:
            assert row == pytest.approx(other, rel=0, abs=1e-5)
    placed = tables[StageFile.TRAIN]
    assert sorted(placed.column("sample_index").to_pylist()) == list(range(64))
    ranks = set(placed.column("rank").to_pylist())
    assert ranks == ({0, 1} if layout == "dp2" else {0})
