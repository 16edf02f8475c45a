"""Every rule once: what is given, and what its sentence must hold.

Run as a script (also under ``python -O``) it prints the rows that are not refused as
they should be, and ends with their number.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from relax.arguments import parse_arguments
from relax.errors import ArgumentError

FORGE = "relax.engine.rollout.forge_load.generate_rollout"


@dataclass(frozen=True)
class Row:
    """Arguments that are refused; ``says`` is flag, value and fix."""

    given: str
    says: tuple[str, ...]
    without: tuple[str, ...] = ()
    has_gpu: bool = False


def base_arguments(folder: Path) -> dict[str, str]:
    """The arguments of a small run that stands, with the files it needs."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "config.json").write_text("{}")
    (folder / "prompts.jsonl").write_text("{}\n")
    (folder / "0.pt").write_text("")
    return {
        "--hf-checkpoint": str(checkpoint),
        "--prompt-data": str(folder / "prompts.jsonl"),
        "--num-rollout": "3",
        "--rollout-batch-size": "4",
        "--n-samples-per-prompt": "2",
        "--rm-type": "exact_match",
        "--rollout-max-response-len": "8",
    }


def command_line(row: Row, folder: Path) -> list[str]:
    """The row's words after those of the small run."""
    base = base_arguments(folder)
    words = [
        word
        for name, value in base.items()
        if name not in row.without
        for word in (name, value)
    ]
    given = row.given.replace("TMP", str(folder))
    return words + [word.replace("~", " ") for word in given.split()]


ROWS = (
    # Reading
    Row("--rollout-temprature 3", ("--rollout-temprature 3", "--rollout-temperature")),
    Row("--hiden-dropout 0.1", ("--hiden-dropout 0.1", "--hidden-dropout")),
    Row("--num-roll 3", ("--num-roll 3", "unknown", "--num-rollout")),
    Row("--kl-coef x", ("--kl-coef x", "finite number")),
    Row("--kl-coef nan", ("--kl-coef nan", "finite number")),
    Row("--lr inf", ("--lr inf", "finite number")),
    Row("--seed 1.5", ("--seed 1.5", "whole number")),
    Row("--seed", ("--seed", "one value")),
    Row("--colocate=maybe", ("--colocate maybe", "true or false")),
    Row("--kl-loss-type k4", ("--kl-loss-type k4", "low_var_kl")),
    Row("--n-samples-per-prompt 0", ("--n-samples-per-prompt 0", ">= 1")),
    Row("--rollout-top-p 1.5", ("--rollout-top-p 1.5", "<= 1")),
    Row("--rollout-temperature 0", ("--rollout-temperature 0", "> 0")),
    Row("--walk true", ("'true'", "--name=value")),
    Row("--activation-func relu", ("--activation-func relu", "Python object")),
    Row("--normalization BatchNorm", ("--normalization BatchNorm", "RMSNorm")),
    Row("--config TMP/none.yaml", ("--config", "none.yaml", "exists")),
    Row("--resource [1]", ("--resource [1]", "actor")),
    Row('--resource {"critic":[1,1]}', ("--resource", "critic", "actor")),
    Row('--resource {"actor":[2,1]}', ("--resource", "[1, GPUS]")),
    Row(
        '--resource {"rollout":[1,2]} --rollout-num-gpus 3',
        ("--rollout-num-gpus 3", "--resource", "2"),
    ),
    # Upstream's flags that are not built
    Row("--fully-async", ("--fully-async", "not built", "--colocate")),
    Row("--hybrid", ("--hybrid", "not built", "--rollout-num-gpus")),
    Row("--critic-lr 1e-5", ("--critic-lr 1e-5", "critic", "grpo")),
    Row("--use-critic", ("--use-critic", "not built")),
    Row("--opd-coef 1", ("--opd-coef 1", "distillation")),
    Row("--multimodal-keys image", ("--multimodal-keys image", "multimodal")),
    Row("--lora-rank 8", ("--lora-rank 8", "LoRA")),
    Row("--sft-data x", ("--sft-data x", "fine-tuning")),
    Row("--loss-type sft_loss", ("--loss-type sft_loss", "policy_loss")),
    Row("--train-backend fsdp", ("--train-backend fsdp", "megatron")),
    Row("--use-wandb", ("--use-wandb", "run folder", "relax-tui attach")),
    Row("--swiglu", ("--swiglu", "--hf-checkpoint", "leave it away")),
    Row("--lr-decay-style cosine", ("--lr-decay-style cosine", "constant")),
    Row("--ci-test", ("--ci-test", "relax-tui check")),
    # Modes and dumps
    Row(
        "--debug-rollout-only --load-debug-rollout-data TMP/0.pt",
        ("--debug-rollout-only", "--debug-train-only", "one of them"),
    ),
    Row(
        "--debug-train-only --no-control",
        ("--debug-train-only", "--no-control", "--load-debug-rollout-data"),
    ),
    Row(
        "--load-debug-rollout-data TMP/0.pt --num-epoch 1",
        ("--debug-train-only", "--num-rollout"),
        without=("--num-rollout",),
    ),
    Row(
        "--no-debug-train-only --load-debug-rollout-data TMP/0.pt",
        ("--debug-train-only", "--load-debug-rollout-data"),
    ),
    Row(
        "--load-debug-rollout-data TMP/9.pt",
        ("--load-debug-rollout-data", "9.pt", "does not exist"),
    ),
    Row(
        "--load-debug-rollout-data TMP/{rollout}.pt",
        ("--load-debug-rollout-data", "{rollout}", "{rollout_id}"),
    ),
    Row("", ("--num-rollout", "--num-epoch"), without=("--num-rollout",)),
    Row("--num-epoch 2", ("--num-epoch 2", "--num-rollout 3", "one of the two")),
    Row(
        f"--rollout-function-path {FORGE}",
        ("--rollout-function-path", FORGE, "--load-forge-rollout-data"),
    ),
    Row(
        "--load-forge-rollout-data TMP/0.pt",
        ("--load-forge-rollout-data", "0.pt", "--rollout-function-path"),
    ),
    Row(
        "--load-forge-rollout-data TMP/0.pt --debug-rollout-only",
        ("--load-forge-rollout-data", "0.pt", "--debug-rollout-only"),
    ),
    Row(
        f"--load-forge-rollout-data TMP/9.pt --rollout-function-path {FORGE}",
        ("--load-forge-rollout-data", "9.pt", "does not exist"),
    ),
    Row(
        "--load-debug-rollout-data-subsample 0.5",
        ("--load-debug-rollout-data-subsample 0.5", "--load-debug-rollout-data,"),
    ),
    Row(
        "--check-weight-update-equal --debug-rollout-only",
        ("--check-weight-update-equal", "leave it away"),
    ),
    Row(
        "--save-debug-rollout-data TMP/d.pt",
        ("--save-debug-rollout-data", "d.pt", "{rollout_id}"),
    ),
    Row(
        "--save-debug-train-data TMP/{rollout_id}.pt --actor-num-gpus-per-node 2",
        ("--save-debug-train-data", "{rollout_id}.pt", "{rank}"),
    ),
    Row(
        "--save-debug-train-data TMP/{rollout_id}{.pt",
        ("--save-debug-train-data", "braces", "{{"),
    ),
    Row(
        "--save-debug-rollout-data TMP/data.pt",
        ("--save-debug-rollout-data", "{rollout_id}", "data_{rollout_id}.pt"),
    ),
    Row(
        "--save-debug-rollout-data TMP/{rollout_id}.pt"
        " --save-debug-train-data TMP/{rollout_id}.pt",
        ("--save-debug-train-data", "same files", "another name"),
    ),
    Row("--save-hf TMP/hf", ("--save-hf", "{rollout_id}", "hf_{rollout_id}")),
    Row("--dump-on start", ("--dump-on", "start", "nonfinite")),
    Row("--dump-on verdict:SAD", ("--dump-on", "SAD", "FAIL")),
    Row(
        "--dump-details TMP --save-debug-rollout-data TMP/{rollout_id}.pt",
        ("--save-debug-rollout-data", "--dump-details", "away"),
    ),
    # The algorithm
    Row("--advantage-estimator sapo", ("--advantage-estimator sapo", "yet", "grpo")),
    Row("--advantage-estimator x", ("--advantage-estimator x", "no such", "grpo")),
    Row(
        "--kl-coef 0.1 --kl-loss-coef 0.1 --use-kl-loss --ref-load TMP",
        ("--kl-coef 0.1", "--kl-loss-coef 0.1", "to 0"),
    ),
    Row("--kl-loss-coef 0.1", ("--kl-loss-coef 0.1", "--use-kl-loss")),
    Row("--use-unbiased-kl", ("--use-unbiased-kl", "--use-kl-loss")),
    Row("--use-kl-loss", ("--use-kl-loss", "reference", "--ref-load")),
    Row("--kl-coef 0.1", ("--kl-coef 0.1", "reference", "--ref-load")),
    Row(
        "--kl-coef 0.1 --ref-load TMP/checkpoint",
        ("--kl-coef 0.1", "no effect with grpo", "--use-kl-loss"),
    ),
    Row("--gamma 0.9", ("--gamma 0.9", "no effect with grpo", "reinforce_plus_plus")),
    Row(
        "--advantage-estimator reinforce_plus_plus",
        ("--advantage-estimator", "not normalised", "--normalize-advantages"),
    ),
    Row(
        "--advantage-estimator reinforce_plus_plus_baseline",
        ("--advantage-estimator", "not normalised", "--normalize-advantages"),
    ),
    Row(
        "--advantage-estimator rloo --n-samples-per-prompt 1",
        ("--n-samples-per-prompt 1", "no other samples", "at least 2"),
        without=("--n-samples-per-prompt",),
    ),
    Row(
        "--advantage-estimator rloo --disable-rewards-normalization",
        ("rewards-normalization", "baseline", "away"),
    ),
    Row(
        "--advantage-estimator rloo --normalize-advantages",
        ("--normalize-advantages", "whitens again", "away"),
    ),
    Row("--use-kl-loss --ref-load TMP/none", ("--ref-load", "none", "exist")),
    Row("--use-tis --use-rollout-logprobs", ("--use-tis", "--use-rollout-logprobs")),
    Row("--tis-clip-low 3", ("--tis-clip-low 3", "--tis-clip 2.0", "lower")),
    # Layout and machine
    Row(
        "--tensor-model-parallel-size 2 --actor-num-gpus-per-node 3",
        ("--actor-num-gpus-per-node 3", "copies of 2", "multiple of 2"),
    ),
    Row(
        "--expert-model-parallel-size 2 --actor-num-gpus-per-node 1",
        ("--expert-model-parallel-size 2", "multiple of 2"),
    ),
    Row(
        "--actor-num-gpus-per-node 16 --colocate",
        ("--actor-num-gpus-per-node 16", "8 GPUs", "--num-gpus-per-node"),
        has_gpu=True,
    ),
    Row("", ("--rollout-num-gpus", "--colocate"), has_gpu=True),
    Row(
        "--rollout-num-gpus 3 --rollout-num-gpus-per-engine 2",
        ("--rollout-num-gpus 3", "engines of 2", "multiple"),
        has_gpu=True,
    ),
    Row("--rollout-num-gpus 0", ("--rollout-num-gpus 0", "at least")),
    Row("--context-parallel-size 2", ("--context-parallel-size 2", "GPUs", "use 1")),
    Row(
        "--transformer-impl transformer_engine",
        ("--transformer-impl transformer_engine", "GPUs", "local"),
    ),
    Row("--hidden-dropout 0.1", ("--hidden-dropout 0.1", "GPUs", "0.0")),
    Row("--attention-dropout 0.1", ("--attention-dropout 0.1", "GPUs", "0.0")),
    Row("--fp8 e4m3", ("--fp8 e4m3", "GPUs", "away")),
    Row(
        "--moe-token-dispatcher-type alltoall",
        ("--moe-token-dispatcher-type alltoall", "GPUs", "allgather"),
    ),
    Row("--colocate --offload-train", ("--offload-train", "GPU memory", "away")),
    Row("--megatron-to-hf-mode bridge", ("--megatron-to-hf-mode bridge", "use raw")),
    # Batches
    Row(
        "",
        ("--rollout-batch-size", "--global-batch-size"),
        without=("--rollout-batch-size",),
    ),
    Row(
        "--num-steps-per-rollout 3",
        ("--num-steps-per-rollout 3", "8 samples", "divides"),
    ),
    Row("--global-batch-size 3", ("--global-batch-size 3", "8 samples", "divides")),
    Row(
        "--global-batch-size 2 --num-steps-per-rollout 2",
        ("--global-batch-size 2", "--num-steps-per-rollout", "4"),
    ),
    Row(
        "--global-batch-size 3",
        ("--global-batch-size 3", "groups of 2", "--rollout-batch-size"),
        without=("--rollout-batch-size",),
    ),
    Row(
        "--actor-num-gpus-per-node 3",
        ("--global-batch-size 8", "3 data-parallel ranks", "multiple of 3"),
    ),
    Row("--micro-batch-size 3", ("--global-batch-size 8", "x 3", "multiple of 3")),
    Row(
        "--use-dynamic-batch-size",
        ("--use-dynamic-batch-size", "--max-tokens-per-gpu"),
    ),
    Row(
        "--use-dynamic-batch-size --max-tokens-per-gpu 16 --rollout-max-context-len 32",
        ("--max-tokens-per-gpu 16", "--rollout-max-context-len 32", "at least 32"),
    ),
    Row(
        "--over-sampling-batch-size 3",
        ("--over-sampling-batch-size 3", "--rollout-batch-size 4", "at least 4"),
    ),
    # Generation
    Row(
        "--sglang-mem-fraction-static 0.4",
        ("--sglang-mem-fraction-static 0.4", "SGLang", "--rollout-backend sglang"),
    ),
    Row("--bf16", ("--bf16", "float32", "--rollout-backend sglang")),
    Row("--sglang-python TMP", ("--sglang-python", "--rollout-backend sglang")),
    Row(
        "",
        ("--rollout-max-response-len", "--rollout-max-context-len"),
        without=("--rollout-max-response-len",),
    ),
    Row(
        "--rollout-max-context-len 4",
        ("--rollout-max-response-len 8", "--rollout-max-context-len 4", "at most 4"),
    ),
    Row("--rollout-top-k 0", ("--rollout-top-k 0", "-1")),
    Row("", ("--prompt-data", "prompts"), without=("--prompt-data",)),
    Row("--rm-type deepscaler", ("--rm-type deepscaler", "--custom-rm-path")),
    Row("--rm-type exact", ("--rm-type exact", "exact_match", "last_number")),
    Row("--custom-rm-path a.b", ("--rm-type exact_match", "--custom-rm-path a.b")),
    Row("", ("--rm-type", "--custom-rm-path"), without=("--rm-type",)),
    Row("--eval-interval 2", ("--eval-interval 2", "--eval-prompt-data")),
    Row("--eval-prompt-data a", ("--eval-prompt-data a", "NAME PATH")),
    Row("--eval-prompt-data a TMP/x", ("--eval-prompt-data a", "x does not exist")),
    # Running
    Row("--pause-at soon", ("--pause-at soon", "R:STAGE")),
    Row("--pause-at 3:sleep", ("--pause-at 3:sleep", "update_weights")),
    Row("--pause-at x:train", ("--pause-at x:train", "rollout number", "R:STAGE")),
    Row("--pause-at verdict:BAD", ("--pause-at verdict:BAD", "FAIL")),
    Row("--pause-at grad_norm~>~nan", ("--pause-at grad_norm > nan", "finite")),
    Row("--pause-at kl_los~>~1", ("--pause-at kl_los > 1", "measures no")),
    Row("--no-control --walk", ("--no-control", "--pause-limit")),
    Row("--inject-fault fire", ("--inject-fault fire", "nan-grad")),
    Row("--save-interval 2", ("--save-interval 2", "--save")),
    # Files
    Row("", ("--hf-checkpoint", "required"), without=("--hf-checkpoint",)),
    Row("--hf-checkpoint TMP/no", ("--hf-checkpoint", "no such", "config.json")),
    Row("--hf-checkpoint TMP", ("--hf-checkpoint", "config.json")),
    Row("--prompt-data TMP/no.jsonl", ("--prompt-data", "no.jsonl", "exist")),
    Row("--run-dir TMP/0.pt", ("--run-dir", "0.pt", "another path")),
)


def complaint(row: Row, folder: Path) -> str:
    """What is wrong with how a row is refused; empty when nothing is."""
    try:
        parse_arguments(command_line(row, folder), has_gpu=row.has_gpu)
    except ArgumentError as error:
        missing = [piece for piece in row.says if piece not in str(error)]
        problems = [f"{piece!r} is not in {str(error)!r}" for piece in missing]
        if not error.hint:
            problems.append(f"no fix: {error}")
        if "\n" in str(error):
            problems.append("more than one line")
        return "; ".join(problems)
    return f"not refused: {row.given!r} without {row.without}"


def main() -> int:
    """Prints every complaint; the number of them is the exit code."""
    with tempfile.TemporaryDirectory() as name:
        found = [text for row in ROWS if (text := complaint(row, Path(name)))]
    for text in found:
        sys.stdout.write(text + "\n")
    sys.stdout.write(f"{len(ROWS)} rows, {len(found)} complaints\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
