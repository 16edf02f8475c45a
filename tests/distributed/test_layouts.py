"""The same numbers on every parallel layout as on one rank.

A row of the table is the flags of one layout. Its training workers run in real
processes, one a rank, and do what a run does: take their samples, score them by both
models, make advantages and three optimizer steps, and write the weights. What all
ranks report is joined as the driver joins it, and compared with one rank. A row may
also be a layout that is refused.

Tokens that a mixture of experts sends to other experts than one rank does are counted
apart (`routing`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_ranks
from routing import Choices, chosen_otherwise, joined_choices, recorded_choices
from safetensors.torch import load_file
from tiny_models import EXPERTS, random_model, random_samples, save_model

from relax.arguments import Arguments, parse_arguments
from relax.arguments.groups import BatchSettings, LayoutSettings
from relax.backends.megatron.worker import TrainWorker
from relax.backends.training import RolloutInput, train_rows
from relax.controller.partition import share_out
from relax.controller.trainers import joined_rows
from relax.errors import ArgumentError
from relax.measure.reduction import Metrics, merge_metrics, metric_values

MODELS = {
    "llama": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", True),
    "moe": ("qwen3_moe", False),
}
MOST_DIFFERING = 0.001
"""Tokens of a layout that may go to other experts than on one rank."""
NUM_SAMPLES = 17
"""Steps of 8, 8 and 1: the last leaves a replica without a sample."""


@dataclass(frozen=True)
class Row:
    """One layout: its flags, and the sentence when it is refused."""

    name: str
    model: str
    world: int
    flags: str
    refused: str = ""

    @property
    def per_token(self) -> bool:
        return "--calculate-per-token-loss" in self.flags


TP2 = "--tensor-model-parallel-size 2"
SP = f"{TP2} --sequence-parallel"
PP2 = "--pipeline-model-parallel-size 2"
EP2 = "--expert-model-parallel-size 2"
ZERO = "--use-distributed-optimizer"
DYNAMIC = "--use-dynamic-batch-size --max-tokens-per-gpu 64"
PACKED = "--qkv-format thd"
BY_TOKEN = "--calculate-per-token-loss"

TABLE = [
    Row("dynamic", "llama", 1, f"{DYNAMIC} --log-probs-max-tokens-per-gpu 96"),
    Row("micro-batch-1", "qwen2", 1, "--micro-batch-size 1"),
    Row("packed", "qwen3", 1, f"{PACKED} --micro-batch-size 4"),
    Row("packed-dynamic", "moe", 1, f"{PACKED} {DYNAMIC}"),
    Row("packed-tp2-sp", "llama", 2, f"{SP} {PACKED} {DYNAMIC}"),
    Row("packed-pp2", "qwen2", 2, f"{PP2} {PACKED} {BY_TOKEN}"),
    Row("packed-ep2", "moe", 2, f"{EP2} {PACKED} {DYNAMIC} --balance-data"),
    Row("tp2", "llama", 2, TP2),
    Row("tp2", "qwen3", 2, f"{TP2} {BY_TOKEN}"),
    Row("tp2-sp", "qwen2", 2, f"{SP} --micro-batch-size 4"),
    Row("pp2", "qwen3", 2, PP2),
    Row("pp2-dynamic", "qwen2", 2, f"{PP2} {DYNAMIC} {BY_TOKEN}"),
    Row("dp2", "qwen2", 2, "--micro-batch-size 1"),
    Row("dp2-balanced-dynamic", "qwen3", 2, f"--balance-data {DYNAMIC}"),
    Row("dp2-zero", "qwen3", 2, ZERO),
    Row("dp2-zero-by-token", "llama", 2, f"{ZERO} {BY_TOKEN}"),
    Row("tp2-sp", "moe", 2, SP),
    Row("pp2", "moe", 2, f"{PP2} {BY_TOKEN}"),
    Row("dp2-zero", "moe", 2, ZERO),
    Row("ep2", "moe", 2, EP2),
    Row("ep2-zero-dynamic", "moe", 2, f"{EP2} {ZERO} {DYNAMIC} {BY_TOKEN}"),
    Row("tp2-sp-ep2-etp1", "moe", 2, f"{SP} {EP2} --expert-tensor-parallel-size 1"),
    Row("tp2-sp-pp2", "qwen3", 4, f"{SP} {PP2}"),
    Row("tp2-dp2-zero", "qwen2", 4, f"{TP2} {ZERO}"),
    Row("pp2-dp2", "llama", 4, f"{PP2} --balance-data"),
    Row("tp2-sp-ep2", "moe", 4, f"{SP} {EP2}"),
    Row("pp2-ep2-zero", "moe", 4, f"{PP2} {EP2} {ZERO}"),
    Row("tp4", "qwen3", 4, "--tensor-model-parallel-size 4", "2 key/value heads"),
    Row("pp4", "qwen3", 4, "--pipeline-model-parallel-size 4", "2 layers"),
    Row("tp2", "qwen3", 3, TP2, "multiple of 2"),
    Row("dp3", "qwen3", 3, "", "3 data-parallel ranks"),
    Row("dp2", "qwen3", 2, "--micro-batch-size 8", "2 data-parallel ranks"),
    Row("cp2", "qwen3", 2, "--context-parallel-size 2", "GPUs"),
    Row("ep2", "qwen3", 2, EP2, "no experts"),
    Row("ep2", "moe", 1, EP2, "multiple of 2"),
    Row(
        "ep8",
        "moe",
        8,
        "--expert-model-parallel-size 8 --micro-batch-size 1",
        "4 experts",
    ),
    Row(
        "alltoall",
        "moe",
        2,
        f"{EP2} --moe-token-dispatcher-type alltoall",
        "needs GPUs",
    ),
]
SMOOTH_ADAM = "--lr 0.5 --adam-eps 1.0 --weight-decay 0.01"
"""With so large an epsilon Adam is a smooth function of the gradients; with its own, a
gradient near zero takes a step of full length in one direction or the other."""
RUN = [row for row in TABLE if not row.refused]
REFUSED = [row for row in TABLE if row.refused]
KEYS = [f"{row.model}-{row.world}-{row.name}" for row in TABLE]


def key(row: Row) -> str:
    return f"{row.model}-{row.world}-{row.name}"


def words_of(row: Row, folder: Path) -> list[str]:
    model = folder / row.model / "hf"
    told = f"""
        --hf-checkpoint {model} --ref-load {model}
        --prompt-data {folder / "prompts.jsonl"} --num-rollout 1 --rm-type exact_match
        --rollout-batch-size 6 --n-samples-per-prompt 4 --num-steps-per-rollout 3
        --micro-batch-size 2 --rollout-max-response-len 32 --rollout-temperature 0.8
        --use-kl-loss --kl-loss-coef 0.1 --kl-loss-type k3 --entropy-coef 0.01
        --normalize-advantages {SMOOTH_ADAM} --clip-grad 0.5 --grad-norm-by-layer
        --actor-num-gpus-per-node {row.world} {row.flags}
    """
    return told.split()


def arguments_of(row: Row, folder: Path) -> Arguments:
    return parse_arguments(words_of(row, folder), has_gpu=False)


@dataclass
class Reported:
    """What one rank of a layout reported."""

    metrics: list[Metrics]
    rows: dict[str, list[Any]]
    steps: list[Metrics]
    placed: dict[str, list[Any]]
    choices: Choices


def run_row(arguments: Arguments, *, rank: int, folder: Path, meeting: str) -> Reported:
    """One rank of one layout, from its samples to the weights after three steps."""
    worker = TrainWorker(
        arguments,
        run_dir=folder / meeting,
        rank=rank,
        world_size=arguments.cluster.world_size,
    )
    opened = worker.open(f"file://{folder}/meeting-{meeting}")
    try:
        worker.save_hf(folder / meeting / "before")
        worker.receive(rollout_input(arguments, opened.data_rank))
        passes = [worker.ref_log_probs()]
        with recorded_choices() as choices:
            passes.append(worker.log_probs(entropy=True))
        advantages = worker.advantages()
        steps = worker.train()
        worker.save_hf(folder / meeting / "after")
        return Reported(
            metrics=[*(each.metrics for each in passes), advantages.metrics],
            rows=advantages.columns(),
            steps=[step.metrics for step in steps],
            placed=train_rows(steps, rollout_id=0),
            choices=choices,
        )
    finally:
        worker.close()


def rollout_input(arguments: Arguments, replica: int) -> RolloutInput:
    """The replica's samples of a rollout that lost 7 of its 24."""
    samples = random_samples(NUM_SAMPLES)
    batch = arguments.batch
    share = share_out(
        [len(sample.tokens) for sample in samples],
        samples_per_step=batch.global_batch_size,
        replicas=arguments.data_parallel_size,
        balance=batch.balance_data,
    )[replica]
    own = [samples[row] for row in share.rows]
    columns = ("sample_index", "group_index", "tokens", "response_length")
    columns += ("loss_mask", "rollout_log_probs")
    return RolloutInput(
        rollout_id=0,
        **{name: [getattr(sample, name) for sample in own] for name in columns},
        places=share.rows,
        step_sizes=share.step_sizes,
        all_rewards=[sample.reward for sample in samples],
        all_groups=[sample.group_index for sample in samples],
        kept=frozenset(range(len(own))),
        observed=True,
    )


def run_rows(
    *, rank: int, world_size: int, folder: Path, rows: dict[str, Arguments]
) -> dict[str, Reported]:
    """In each process: all layouts of its size, one after the other."""
    return {
        name: run_row(arguments, rank=rank, folder=folder, meeting=name)
        for name, arguments in rows.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    (folder / "prompts.jsonl").write_text("{}\n")
    for name, (family, tied) in MODELS.items():
        save_model(random_model(family, tied=tied), folder / name / "hf")
    return folder


def alone(model: str, *, per_token: bool) -> Row:
    name = "by-token" if per_token else "by-sample"
    return Row(name, model, 1, BY_TOKEN if per_token else "")


@pytest.fixture(scope="module")
def reported(folder):
    """What every rank of every row reported, and one rank alone."""
    wanted = [alone(model, per_token=p) for model in MODELS for p in (False, True)]
    found = {}
    for world in (1, 2, 4):
        rows = [row for row in [*wanted, *RUN] if row.world == world]
        arguments = {key(row): arguments_of(row, folder) for row in rows}
        ranks = run_ranks(run_rows, world_size=world, folder=folder, rows=arguments)
        for name in arguments:
            found[name] = [rank[name] for rank in ranks]
    return found


def close(value: float, expected: float) -> bool:
    return abs(value - expected) <= 1e-5 * max(1.0, abs(expected))


def check_values(found: Metrics, expected: Metrics) -> None:
    """The same metrics, and each the same number, counts among them exactly."""
    values, wanted = metric_values(found), metric_values(expected)
    # Experts that are spread over ranks are parameter groups of their own.
    rates = {name for name in {*values, *wanted} if name.startswith("train/lr-pg_")}
    assert {(values | wanted)[name] for name in rates} <= {0.5}
    assert set(values) - rates == set(wanted) - rates
    assert {type(found[n]) for n in found} == {type(expected[n]) for n in expected}
    for name, value in wanted.items():
        # How many units in the last place random numbers are apart says nothing.
        if name not in rates and not name.endswith("ulp_max"):
            assert close(values[name], value), f"{name}: {values[name]} for {value}"


@pytest.mark.parametrize("row", RUN, ids=key)
def test_a_layout_gives_the_numbers_of_one_rank(row, reported):
    (expected,) = reported[key(alone(row.model, per_token=row.per_token))]
    ranks = reported[key(row)]

    stages = zip(*(rank.metrics for rank in ranks), strict=True)
    metrics = [merge_metrics(parts) for parts in stages]
    for found, wanted in zip(metrics, expected.metrics, strict=True):
        check_values(found, wanted)
    assert metrics[1]["logprob_ref/unequal"].value == 0
    for rank in ranks:
        assert len(rank.steps) == 3
        for found, wanted in zip(rank.steps, expected.steps, strict=True):
            check_values(found, wanted)

    rows, wanted = joined_rows([r.rows for r in ranks]), expected.rows
    assert sorted(rows["sample_index"]) == wanted["sample_index"]
    for at, index in enumerate(rows["sample_index"]):
        for name in ("log_probs", "ref_log_probs", "entropy", "advantages", "returns"):
            one = wanted[name][index]
            bound = 1e-5 * np.maximum(1, np.abs(one))
            assert (np.abs(rows[name][at] - one) <= bound).all(), (name, index)

    placed = joined_rows([r.placed for r in ranks])
    steps = dict(zip(placed["sample_index"], placed["step_id"], strict=True))
    assert steps == {index: index // 8 for index in range(NUM_SAMPLES)}


@pytest.mark.parametrize("row", RUN, ids=key)
def test_weights_come_back_bitwise_and_train_alike(row, reported, folder):
    original = load_file(folder / row.model / "hf" / "model.safetensors")
    before = load_file(folder / key(row) / "before" / "model.safetensors")
    assert set(before) == set(original)
    for name, tensor in original.items():
        assert before[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    one = key(alone(row.model, per_token=row.per_token))
    expected = load_file(folder / one / "after" / "model.safetensors")
    after = load_file(folder / key(row) / "after" / "model.safetensors")
    for name, tensor in expected.items():
        assert not tensor.equal(original[name]), name
        np.testing.assert_allclose(after[name], tensor, atol=1e-5, rtol=0, err_msg=name)


@pytest.mark.parametrize("row", [r for r in RUN if r.model == "moe"], ids=key)
def test_tokens_go_to_the_experts_of_one_rank(row, reported):
    (alone_rank,) = reported[key(alone(row.model, per_token=row.per_token))]
    choices = joined_choices([rank.choices for rank in reported[key(row)]])
    differing, tokens = chosen_otherwise(choices, alone_rank.choices)
    assert tokens == sum(len(s.tokens) for s in random_samples(NUM_SAMPLES))
    assert differing <= MOST_DIFFERING * tokens, f"{differing} of {tokens}"
    for chosen in choices.values():
        assert (chosen.sum(axis=-1) == EXPERTS["num_experts_per_tok"]).all()


@pytest.mark.parametrize("row", RUN, ids=key)
def test_parts_of_the_gradient_norm_add_up(row, reported):
    for step in reported[key(row)][0].steps:
        values = metric_values(step)
        whole = values["train/grad_norm"]
        parts = {k: v for k, v in values.items() if k.startswith("train/grad_norm/")}
        names = {name.rsplit("/", 1)[-1] for name in parts}
        mlp = {"router", "experts"} if row.model == "moe" else {"mlp"}
        output = set() if MODELS[row.model][1] else {"output"}
        assert names == {"embedding", "attention", "norm"} | mlp | output
        assert sum(v * v for v in parts.values()) == pytest.approx(whole**2, rel=1e-6)
        layers = [values[f"train/grad_norm_layer/{n}"] for n in range(2)]
        outside = sum(
            parts[f"train/grad_norm/{n}"] ** 2 for n in {"embedding"} | output
        )
        inside = sum(v * v for v in layers)
        # The rest is the final norm.
        assert 0 < whole**2 - inside - outside < 0.2 * whole**2


@pytest.mark.parametrize("row", REFUSED, ids=key)
def test_a_layout_that_cannot_be_is_refused(row, folder):
    with pytest.raises(ArgumentError, match=row.refused):
        open_alone(arguments_of(row, folder), folder / "refused")


def open_alone(arguments: Arguments, folder: Path) -> None:
    """Refusals need no peers: all ranks find them before they meet."""
    from relax.backends.megatron.model.build import transformer_config
    from relax.backends.megatron.model.hf_config import model_shape, read_hf_config

    shape = model_shape(read_hf_config(arguments.checkpoint.hf_checkpoint))
    transformer_config(shape, arguments.megatron, arguments.layout)


def test_every_layout_flag_has_a_row():
    flags = " ".join(row.flags for row in TABLE)
    base = " ".join(words_of(TABLE[0], Path("/"))) + " " + flags
    for group in (LayoutSettings, BatchSettings):
        for field in dataclasses.fields(group):
            if field.name == "global_batch_size":
                continue  # the rollout's samples over the steps
            flag = f"--{field.name.replace('_', '-')}"
            assert f"{flag} " in f"{base} ", f"{flag} is in no row of the table"
    assert len(set(KEYS)) == len(KEYS)
