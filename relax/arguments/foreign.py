"""Upstream's flags that mean something here without being flags of their own.

A person who brings a launch script from upstream is told, flag by flag, what to do with
it: some have another name, some say what is so anyway, the rest is refused in one
sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ALIASES: Final[Mapping[str, str]] = {
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "norm_epsilon": "layernorm_epsilon",
}
"""Upstream's (or Megatron's command line's) name, and the field that it sets."""

SAID_ANYWAY: Final[Mapping[str, tuple[str, ...]]] = {
    "train_backend": ("megatron",),
    "loss_type": ("policy_loss",),
    "lr_decay_style": ("constant",),
    "task_type": ("rl",),
    "actor_num_serves": ("1",),
}
"""Flags that are taken with these values, which change nothing, and no others."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a flag of upstream is refused.

    Attributes:
        problem: What is not there.
        fix: What to do instead.
    """

    problem: str
    fix: str


_LEAVE: Final = "leave it away"

_FAMILIES: Final = (
    (
        "fully_async max_staleness num_iters_per_train_update true_on_policy_mode"
        " partial_rollout",
        Refusal("fully asynchronous training is not built", "use --colocate"),
    ),
    (
        "hybrid",
        Refusal(
            "hybrid placement is not built",
            "use --colocate, or give generation GPUs by --rollout-num-gpus",
        ),
    ),
    (
        "use_critic critic_* value_clip value_loss_coef lambd num_critic_only_steps",
        Refusal("a PPO critic is not built", "use --advantage-estimator grpo"),
    ),
    ("use_opd opd_* teacher_* distill_*", Refusal("distillation is not built", _LEAVE)),
    (
        "multimodal_* mm_* image_* video_* audio_*",
        Refusal("multimodal training is not built", "use a text model and its data"),
    ),
    (
        "use_lora lora_* target_modules",
        Refusal("LoRA is not built", "train all weights, or leave it away"),
    ),
    ("sft_*", Refusal("supervised fine-tuning is not built", _LEAVE)),
    (
        "use_tensorboard tensorboard_* tb_* use_wandb wandb_* use_clearml clearml_*"
        " use_metrics_service timeline_dump_dir log_multi_turn log_passrate"
        " log_reward_category rollout_result_dir custom_rollout_log_function_path"
        " custom_eval_rollout_log_function_path",
        Refusal(
            "metrics and samples are written to the run folder",
            "leave it away and open the run with relax-tui attach",
        ),
    ),
    (
        "ci_*",
        Refusal("checks are made by the console", "use relax-tui check, or --pause-at"),
    ),
    (
        "memory_* record_memory_history profile_* use_pytorch_profiler"
        " enable_cuda_memory_check straggler_*",
        Refusal("profiling is not built", _LEAVE),
    ),
    (
        "num_attention_heads_per_group swiglu vocab_size make_vocab_size_divisible_by"
        " rotary_base use_rotary_position_embeddings position_embedding_type"
        " disable_bias_linear untie_embeddings_and_output_weights group_query_attention"
        " max_position_embeddings rotary_percent seq_length tokenizer_type"
        " tokenizer_model",
        Refusal(
            "the model's shape and tokenizer are read from --hf-checkpoint", _LEAVE
        ),
    ),
    (
        "lr_warmup_* lr_decay_* lr_wsd_* weight_decay_incr_style start_weight_decay"
        " end_weight_decay train_iters",
        Refusal("the learning rate is constant", "set --lr and leave it away"),
    ),
    (
        "eps_clip_c use_opsm opsm_* custom_tis_function_path get_mismatch_metrics"
        " ref_update_interval keep_old_actor custom_reward_post_process_path"
        " custom_megatron_* rollout_data_postprocess_path dynamic_sampling_filter_path"
        " buffer_filter_path eval_reward_key n_samples_per_eval_prompt"
        " skip_eval_before_train use_rollout_entropy use_fault_tolerance"
        " update_weight_buffer_size disable_weights_backuper train_memory_margin_bytes"
        " selective_offload distributed_timeout_minutes num_data_storage_units"
        " log_probs_chunk_size recompute_loss_function use_routing_replay"
        " use_rollout_routing_replay autoscaler_* custom_model_provider_path"
        " skip_hf_validate eval_*",
        Refusal("this flag of upstream is not built yet", _LEAVE),
    ),
)


def refusal_of(name: str) -> Refusal | None:
    """Why ``name`` is refused, when it is a flag of upstream that is not built."""
    for names, refusal in _FAMILIES:
        for pattern in names.split():
            stem = pattern.removesuffix("*")
            if name == pattern or (stem != pattern and name.startswith(stem)):
                return refusal
    return None


ESTIMATORS: Final = (
    "grpo",
    "gspo",
    "cispo",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
)
"""Advantage estimators that are built."""

ESTIMATORS_NOT_YET: Final = ("sapo", "m2po", "ppo")
"""Upstream's others."""

BUILT_IN_REWARDS: Final = ("exact_match", "last_number", "random")
"""What ``--rm-type`` takes."""

UPSTREAM_REWARDS: Final = (
    "math",
    "dapo",
    "deepscaler",
    "f1",
    "gpqa",
    "ifbench",
    "remote_rm",
)
"""Upstream's built-in rewards, which are not here."""
