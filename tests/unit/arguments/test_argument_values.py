import json
from pathlib import Path

import pytest

from relax.arguments import asked_text, parse_arguments, show_arguments
from relax.arguments.flags import GROUPS, own_flags
from relax.errors import ArgumentError


def test_flag_over_file_over_default(tmp_path: Path, words):
    file = tmp_path / "run.yaml"
    file.write_text("seed: 7\nrollout-seed: 8\nlr: 1e-5\nrollout_stop: [a, '3']\n")
    arguments = parse_arguments([*words("--seed 9"), "--config", str(file)])
    assert arguments.megatron.seed == 9
    assert arguments.data.rollout_seed == 8
    assert arguments.data.input_key == "input"
    assert arguments.megatron.optimizer["lr"] == 1e-5
    assert arguments.rollout.rollout_stop == ("a", "3")
    assert arguments.origins["seed"] == "flag"
    assert arguments.origins["rollout_seed"] == f"{file}:2"
    assert arguments.origins["lr"] == f"{file}:3"
    assert arguments.origins["input_key"] == "default"


def test_custom_config_wins_over_flags_as_upstream(tmp_path: Path, words):
    above = tmp_path / "above.yaml"
    above.write_text("seed: 5\n")
    file = tmp_path / "run.yaml"
    file.write_text(f"seed: 7\ncustom-config-path: {above.name}\n")
    arguments = parse_arguments([*words("--seed 9"), "--config", str(file)])
    assert arguments.megatron.seed == 5
    assert arguments.origins["seed"] == f"{above}:1"


def test_paths_in_a_file_are_beside_the_file(tmp_path: Path, words, monkeypatch):
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "data.jsonl").write_text("{}\n")
    (folder / "held.jsonl").write_text("{}\n")
    file = folder / "run.yaml"
    file.write_text(
        "prompt_data: data.jsonl\n"
        "save-debug-rollout-data: dumps/{rollout_id}.pt\n"
        "eval_prompt_data: [held, held.jsonl]\n"
        "run_dir: runs/x\n"
    )
    monkeypatch.chdir(tmp_path)
    given = words("--save out", without=("--prompt-data",))
    arguments = parse_arguments([*given, "--config", "there/run.yaml"])
    assert arguments.data.prompt_data == folder / "data.jsonl"
    assert arguments.debug.save_debug_rollout_data == str(
        folder / "dumps/{rollout_id}.pt"
    )
    assert arguments.run.eval_prompt_data == ("held", str(folder / "held.jsonl"))
    assert arguments.run.run_dir == folder / "runs/x"
    assert arguments.checkpoint.save == tmp_path / "out"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {b: 1}\n", "nested"),
        ("seed: [[1]]\n", "nested"),
        ("- 1\n", "not a mapping"),
        ("seed: 1\nseed: 2\n", "given twice"),
        ("seed: 1\n  x: [\n", "not YAML"),
        ("config: other.yaml\n", "cannot name another"),
        ("seed: null\n", "not null"),
        ("sed: 1\n", "--seed"),
    ],
)
def test_bad_files(tmp_path: Path, words, text, problem):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=problem) as caught:
        parse_arguments([*words(), "--config", str(file)])
    assert str(file) in str(caught.value)


def test_null_leaves_a_derived_value_to_its_derivation(tmp_path: Path, words):
    file = tmp_path / "run.yaml"
    file.write_text("global_batch_size: null\nload: null\npause_at: []\n")
    arguments = parse_arguments([*words(), "--config", str(file)])
    assert arguments.batch.global_batch_size == 8
    assert arguments.checkpoint.load is None


def test_forms_of_a_flag(words):
    arguments = parse_arguments(
        words(
            "--seed=3 --colocate --no-observe --rollout-stop a b"
            " --rollout-stop-token-ids 1 2 --rollout-top-k -1 --kl-loss-coef -0.0"
            " --pause-at start --pause-at grad_norm~>~10 --walk=true"
            " --disable-grpo-std-normalization"
        )
    )
    assert arguments.megatron.seed == 3
    assert arguments.cluster.colocate
    assert not arguments.run.observe
    assert arguments.rollout.rollout_stop == ("a", "b")
    assert arguments.rollout.rollout_stop_token_ids == (1, 2)
    assert arguments.run.pause_at == ("start", "grad_norm > 10")
    assert not arguments.algorithm.grpo_std_normalization
    assert arguments.run.walk


def test_the_last_of_two_flags_holds(words):
    assert parse_arguments(words("--seed 1 --seed 2")).megatron.seed == 2


def test_megatron_settings_under_their_own_names(words):
    arguments = parse_arguments(
        words(
            "--bf16 --rollout-backend sglang --no-apply-rope-fusion"
            " --recompute-granularity selective"
            " --recompute-modules core_attn mlp --window-size 128 0"
            " --moe-aux-loss-coeff 1e-3 --attention-backend flash"
            " --params-dtype bfloat16 --grad-reduce-in-fp32"
            " --adam-beta2 0.98 --accumulate-allreduce-grads-in-fp32"
        )
    )
    megatron = arguments.megatron
    assert megatron.transformer["bf16"] is True
    assert megatron.optimizer["bf16"] is True
    assert "bf16" not in megatron.ddp
    assert megatron.transformer["apply_rope_fusion"] is False
    assert megatron.transformer["recompute_modules"] == ["core_attn", "mlp"]
    assert megatron.transformer["window_size"] == [128, 0]
    assert megatron.transformer["moe_aux_loss_coeff"] == 1e-3
    assert megatron.transformer["attention_backend"] == "flash"
    assert megatron.optimizer["params_dtype"] == "bfloat16"
    assert megatron.optimizer["adam_beta2"] == 0.98
    assert megatron.ddp["grad_reduce_in_fp32"] is True
    # What was not set is megatron-core's to decide, but for upstream's own defaults.
    assert megatron.transformer["hidden_dropout"] == 0.0
    assert megatron.optimizer["lr"] == 1e-6
    assert "num_layers" not in megatron.transformer


def test_sglang_settings_are_read_as_values(words):
    given = words(
        "--rollout-backend sglang --sglang-mem-fraction-static 0.4"
        " --sglang-disable-cuda-graph true --sglang-server-concurrency 8"
    )
    rollout = parse_arguments(given).rollout
    assert rollout.sglang == {"mem_fraction_static": 0.4, "disable_cuda_graph": True}
    assert rollout.sglang_server_concurrency == 8


def test_derived_values_say_from_what(words):
    arguments = parse_arguments(words("--num-steps-per-rollout 2 --eps-clip 0.3"))
    assert arguments.batch.global_batch_size == 4
    assert arguments.algorithm.eps_clip_high == 0.3
    assert arguments.rollout.over_sampling_batch_size == 4
    assert arguments.origins["global_batch_size"] == (
        "derived from --num-steps-per-rollout"
    )
    assert arguments.origins["eps_clip_high"] == "derived from --eps-clip"


@pytest.mark.parametrize(
    ("given", "prompts", "step", "steps"),
    [
        ("--rollout-batch-size 4", 4, 8, 1),
        ("--rollout-batch-size 4 --global-batch-size 4", 4, 4, 2),
        ("--rollout-batch-size 4 --num-steps-per-rollout 4", 4, 2, 4),
        ("--global-batch-size 8", 4, 8, 1),
        ("--global-batch-size 8 --num-steps-per-rollout 2", 8, 8, 2),
    ],
)
def test_batch_relation(words, given, prompts, step, steps):
    batch = parse_arguments(words(given, without=("--rollout-batch-size",))).batch
    assert batch.rollout_batch_size == prompts
    assert batch.global_batch_size == step
    assert batch.num_steps_per_rollout == steps
    samples = batch.rollout_batch_size * batch.n_samples_per_prompt
    assert samples == batch.global_batch_size * batch.num_steps_per_rollout


def test_cpu_and_gpu_defaults(words):
    cpu = parse_arguments(words("--tensor-model-parallel-size 2"))
    assert cpu.cluster.world_size == 2
    assert cpu.data_parallel_size == 1
    assert cpu.rollout.rollout_backend == "embedded"
    assert cpu.megatron.ref_mode == "resident"
    assert cpu.megatron.transformer_impl == "local"
    gpu = parse_arguments(words("--colocate"), has_gpu=True)
    assert gpu.cluster.world_size == 8
    assert gpu.cluster.rollout_num_gpus == 8
    assert gpu.cluster.offload_train
    assert gpu.cluster.offload_rollout
    assert gpu.rollout.rollout_backend == "sglang"
    assert gpu.megatron.ref_mode == "swap"
    assert gpu.megatron.transformer_impl == "transformer_engine"


def test_modes(tmp_path: Path, words):
    trains = parse_arguments(
        words("--load-debug-rollout-data TMP/0.pt", without=("--prompt-data",))
    )
    assert trains.debug.debug_train_only
    assert trains.cluster.rollout_num_gpus == 0
    generates = parse_arguments(words("--debug-rollout-only --colocate"), has_gpu=True)
    assert not generates.cluster.colocate
    assert generates.cluster.rollout_num_gpus == 8
    dumps = parse_arguments(words("--dump-details TMP/d")).debug
    assert (
        dumps.save_debug_rollout_data == f"{tmp_path}/d/rollout_data/{{rollout_id}}.pt"
    )
    assert dumps.save_debug_train_data == (
        f"{tmp_path}/d/train_data/{{rollout_id}}_{{rank}}.pt"
    )


def test_one_sample_a_group_has_no_deviation(words):
    arguments = parse_arguments(words("--n-samples-per-prompt 1"))
    assert not arguments.algorithm.grpo_std_normalization


def test_resource_gives_the_roles_their_gpus(tmp_path: Path, words):
    given = words(
        '--n-samples-per-prompt 4 --resource {"actor":[1,16],"rollout":[1,4]}'
    )
    arguments = parse_arguments(given, has_gpu=True)
    assert arguments.cluster.actor_num_nodes == 2
    assert arguments.cluster.actor_num_gpus_per_node == 8
    assert arguments.cluster.rollout_num_gpus == 4
    file = tmp_path / "run.yaml"
    file.write_text("resource:\n  actor: [1, 2]\n  rollout: [1, 1]\n")
    arguments = parse_arguments([*words(), "--config", str(file)])
    assert arguments.cluster.world_size == 2


def test_sequence_parallel_is_off_without_tensor_parallel(words):
    arguments = parse_arguments(words("--sequence-parallel"))
    assert not arguments.layout.sequence_parallel
    assert "tensor-model-parallel" in arguments.origins["sequence_parallel"]


def test_show_arguments_has_each_value_and_origin(words):
    text = asked_text(words("--show-arguments --seed 3"))
    assert text is not None
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert lines["seed"] == ["3", "flag"]
    assert lines["lr"] == ["1e-06", "default"]
    assert set(own_flags()) <= set(lines)
    assert asked_text(words()) is None


def test_help_names_every_flag():
    text = asked_text(["--help"])
    assert text is not None
    for flag in own_flags().values():
        assert f"--{flag.name.replace('_', '-')}" in text
        assert flag.help.split()[0] in text
    assert "--hidden-dropout" in text
    assert max(len(line) for line in text.splitlines()) <= 110


def listed_flags() -> str:
    lines = ["# name | owner | type | default | upstream or ours"]
    for flag in own_flags().values():
        kind = "|".join(flag.type.choices) or flag.type.base
        kind += "..." if flag.type.many else ""
        default = "required" if flag.required else json.dumps(flag.default)
        if flag.derived:
            default = f"derived: {flag.derived}"
        origin = "ours" if flag.ours else "upstream"
        lines.append(f"{flag.name} | {flag.owner} | {kind} | {default} | {origin}")
    return "\n".join(lines) + "\n"


def test_the_flags_are_the_golden_ones():
    golden = Path(__file__).parents[2] / "goldens" / "flags.txt"
    text = listed_flags()
    assert text == golden.read_text(), f"the flags changed; they are now:\n{text}"


def test_every_group_is_in_the_table():
    assert {flag.owner for flag in own_flags().values()} == set(GROUPS)


def test_show_arguments_of_a_run_is_aligned(words):
    lines = show_arguments(parse_arguments(words())).splitlines()
    columns = {line.rindex("default") for line in lines if line.endswith("  default")}
    assert len(columns) == 1
