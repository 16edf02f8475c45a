"""Tiny random models, samples and trainers for the tests beside this file.

Every trainer here is real: megatron-core, gloo, a file as the meeting place.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from relax.arguments.groups import (
    AlgorithmSettings,
    BatchSettings,
    CheckpointSettings,
    LayoutSettings,
    MegatronSettings,
)
from relax.backends.megatron.settings import TrainerSettings
from relax.backends.megatron.step.batch import TrainSample
from relax.backends.megatron.trainer import MegatronTrainer

FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
VOCAB_SIZE = 197  # no multiple of anything the padding uses; two ranks have 128 and 69


def random_model(
    family: str, *, tied: bool, seed: int = 0, **more: object
) -> PreTrainedModel:
    """A two-layer model with grouped queries and biases that are not zero.

    ``more`` goes into the config.
    """
    config_class, model_class = FAMILIES[family]
    config = config_class(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        rope_theta=10000.0,
        **(EXPERTS if family == "qwen3_moe" else {}),
        **more,
    )
    torch.manual_seed(seed)
    model = model_class(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms start at 1 and biases at 0: a swapped pair would go unseen.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def save_model(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def random_samples(count: int, *, seed: int = 0, group: int = 4) -> list[TrainSample]:
    """Ragged samples with some masked tokens; one has an empty mask."""
    rng = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        total = int(rng.integers(6, 33))
        length = int(rng.integers(1, total))
        mask = (rng.random(length) > 0.2).astype(np.int8)
        samples.append(
            TrainSample(
                sample_index=index,
                tokens=rng.integers(0, VOCAB_SIZE, total),
                response_length=length,
                loss_mask=mask if index != 1 else np.zeros_like(mask),
                rollout_log_probs=rng.normal(-3, 1, length).astype(np.float32),
                reward=float(rng.normal()),
                group_index=index // group,
            )
        )
    return samples


def settings(folder: Path, **changes: object) -> TrainerSettings:
    """Settings of one rank that reads ``folder/hf``; changes replace whole groups."""
    told = TrainerSettings(
        checkpoint=CheckpointSettings(hf_checkpoint=folder / "hf"),
        batch=BatchSettings(
            rollout_batch_size=2,
            n_samples_per_prompt=4,
            global_batch_size=8,
            micro_batch_size=2,
        ),
        algorithm=AlgorithmSettings(),
        layout=LayoutSettings(),
        megatron=MegatronSettings(optimizer={"lr": 1e-3}),
        rollout_temperature=0.8,
        rank=0,
        world_size=1,
        init_method=f"file://{folder}/meeting-{np.random.default_rng().integers(1e9)}",
    )
    return replace(told, **changes)


def with_columns(
    samples: list[TrainSample], trainer: MegatronTrainer, *, reference: bool
) -> list[TrainSample]:
    """The samples after the log-prob passes and the advantages."""
    actor = trainer.log_probs(samples)
    ref = trainer.log_probs(samples, weights="ref") if reference else None
    return [
        replace(
            sample,
            log_probs=actor.log_probs[row],
            ref_log_probs=ref.log_probs[row] if ref else None,
            advantages=advantages,
            returns=returns,
        )
        for row, (sample, (advantages, returns)) in enumerate(
            zip(samples, trainer.advantages(samples), strict=True)
        )
    ]


@torch.no_grad()
def scores_by_transformers(
    model: PreTrainedModel, sample: TrainSample, *, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies from a full forward pass, no padding, no batch."""
    tokens = torch.from_numpy(sample.tokens)
    logits = model(tokens[None]).logits[0].float() / temperature
    logp = torch.log_softmax(logits, dim=-1)
    first = len(tokens) - sample.response_length
    before = logp[first - 1 : -1]
    chosen = before.gather(1, tokens[first:, None]).squeeze(1)
    entropy = -(before.exp() * before).sum(-1)
    return chosen.numpy(), entropy.numpy()
