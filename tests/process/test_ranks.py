"""A run on two ranks measures what a run on one rank measures.

One rollout from the same weights, through the driver: the layouts differ in nothing but
how the work is shared.
"""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from transformers import AutoConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

from relax.events.types import (
    RolloutFinished,
    RunFinished,
    TrainStep,
    WeightsUpdated,
)
from relax.measure.reduction import metric_values
from relax.records.schema import StageFile
from tests.process.runs import ROOT, started

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


EXPERTS_ON_TWO_RANKS = (
    *("--actor-num-gpus-per-node", "2", "--expert-model-parallel-size", "2"),
    "--use-distributed-optimizer",
    *("--rm-type", "random", "--rollout-max-response-len", "16"),
)


def mixture_of_experts(folder):
    """A random Qwen3-MoE with the demo's tokenizer."""
    demo = ROOT / "examples" / "tiny_arith" / "model"
    shutil.copytree(demo, folder)
    (folder / "model.safetensors").unlink()
    config = AutoConfig.from_pretrained(demo)
    names = ("vocab_size", "eos_token_id", "bos_token_id", "pad_token_id")
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            moe_intermediate_size=48,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            **{name: getattr(config, name) for name in names},
        )
    )
    model.float().save_pretrained(folder)
    return folder


def test_experts_on_two_ranks_train_and_reach_the_engine(tmp_path):
    model = str(mixture_of_experts(tmp_path / "model"))
    saved = tmp_path / "saved_{rollout_id}"
    flags = ("--hf-checkpoint", model, "--ref-load", model, "--save-hf", str(saved))
    with started(tmp_path / "run", *ONE_ROLLOUT, *EXPERTS_ON_TWO_RANKS, *flags) as run:
        run.wait_for(RunFinished)
        assert run.end() == 0
        (step,) = run.of(TrainStep)
        (rollout,) = run.of(RolloutFinished)
        values = metric_values({**rollout.metrics, **step.metrics})
        assert values["logprob_ref/unequal"] == 0
        assert values["logprob_rollout/max_abs"] < 1e-5
        assert values["train/grad_norm/experts"] > 0
        assert values["train/grad_norm/router"] > 0
        sent = run.of(WeightsUpdated)
        assert [update.version for update in sent] == [0, 1]
        assert all(u.fingerprint == u.engine_fingerprint for u in sent)
        assert sent[0].fingerprint != sent[1].fingerprint

    again = Qwen3MoeForCausalLM.from_pretrained(
        tmp_path / "saved_0", dtype=torch.float32
    )
    before = Qwen3MoeForCausalLM.from_pretrained(model, dtype=torch.float32)
    name = "model.layers.1.mlp.experts.down_proj"
    moved = (again.state_dict()[name] - before.state_dict()[name]).abs()
    assert (moved.amax(dim=(1, 2)) > 0).all()  # every expert was trained
