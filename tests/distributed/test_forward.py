"""The trainer's forward pass against transformers', and weights through megatron."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import (
    FAMILIES,
    VOCAB_SIZE,
    random_model,
    random_samples,
    save_model,
    scores_by_transformers,
    settings,
)

from relax.arguments.groups import (
    BatchSettings,
    CheckpointSettings,
    LayoutSettings,
    MegatronSettings,
)
from relax.errors import ArgumentError

CASES = [(family, tied) for family in FAMILIES for tied in (True, False)]
IDS = [f"{family}-{'tied' if tied else 'untied'}" for family, tied in CASES]


@pytest.mark.parametrize(("family", "tied"), CASES, ids=IDS)
def test_scores_equal_transformers_and_weights_come_back(
    family, tied, tmp_path, open_trainer
):
    model = random_model(family, tied=tied)
    save_model(model, tmp_path / "hf")
    trainer = open_trainer(settings(tmp_path))
    samples = random_samples(8)

    output = trainer.log_probs(samples, entropy=True)

    for sample, log_probs, entropy in zip(
        samples, output.log_probs, output.entropy, strict=True
    ):
        expected, expected_entropy = scores_by_transformers(
            model, sample, temperature=0.8
        )
        assert log_probs.dtype == np.float32
        assert log_probs.shape == (sample.response_length,)
        bound = 1e-5 * np.maximum(1, np.abs(expected))
        assert (np.abs(log_probs - expected) <= bound).all()
        np.testing.assert_allclose(entropy, expected_entropy, atol=1e-5, rtol=1e-5)

    original = load_file(tmp_path / "hf" / "model.safetensors")
    exported = {}
    for bucket in trainer.export_weights(bucket_bytes=10_000):
        size = sum(tensor.nbytes for tensor in bucket.values())
        assert size <= 10_000 or len(bucket) == 1
        exported |= bucket
    assert set(exported) == set(original)
    for name, tensor in original.items():
        assert torch.equal(exported[name].view(torch.int32), tensor.view(torch.int32))


def test_experts_weights_that_add_up_to_one_equal_transformers(tmp_path, open_trainer):
    """The other way of weighing experts than the family's default."""
    model = random_model("qwen3_moe", tied=False, norm_topk_prob=True)
    save_model(model, tmp_path / "hf")
    samples = random_samples(6)
    found = open_trainer(settings(tmp_path)).log_probs(samples).log_probs
    for sample, log_probs in zip(samples, found, strict=True):
        expected, _ = scores_by_transformers(model, sample, temperature=0.8)
        np.testing.assert_allclose(log_probs, expected, atol=1e-5, rtol=1e-5)


def test_hf_folder_is_read_again_by_transformers(tmp_path, open_trainer):
    model = random_model("qwen3", tied=True)
    save_model(model, tmp_path / "hf")
    trainer = open_trainer(settings(tmp_path))
    trainer.save_hf(tmp_path / "out")

    again = type(model).from_pretrained(tmp_path / "out", dtype=torch.float32)

    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    with pytest.raises(ArgumentError, match="exists"):
        trainer.save_hf(tmp_path / "out")


def test_sharded_checkpoints_are_read_by_their_index(tmp_path, open_trainer):
    model = random_model("llama", tied=False)
    save_model(model, tmp_path / "hf")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="60KB")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    whole = open_trainer(settings(tmp_path)).fingerprint()
    sharded = CheckpointSettings(hf_checkpoint=tmp_path / "sharded")
    assert open_trainer(settings(tmp_path, checkpoint=sharded)).fingerprint() == whole


def with_reference(folder: Path, ref: str, mode: str) -> dict[str, object]:
    return {
        "checkpoint": CheckpointSettings(
            hf_checkpoint=folder / "hf", ref_load=folder / ref
        ),
        "megatron": MegatronSettings(ref_mode=mode, optimizer={"lr": 1e-3}),
    }


@pytest.mark.parametrize("mode", ["resident", "swap"])
def test_equal_reference_weights_give_equal_bits(mode, llama_folder, open_trainer):
    trainer = open_trainer(
        settings(llama_folder, **with_reference(llama_folder, "hf", mode))
    )
    before = trainer.fingerprint()
    samples = random_samples(8)

    ref = trainer.log_probs(samples, weights="ref")
    actor = trainer.log_probs(samples)

    assert (ref.pass_id, actor.pass_id) == ("ref#1", "actor#2")
    assert ref.micro_batches == actor.micro_batches
    for a, b in zip(ref.log_probs, actor.log_probs, strict=True):
        assert a.tobytes() == b.tobytes()
    assert trainer.fingerprint() == before


@pytest.mark.parametrize("mode", ["resident", "swap"])
def test_one_ulp_in_one_reference_weight_is_seen(
    mode, llama_folder, tmp_path, open_trainer
):
    moved = load_file(llama_folder / "hf" / "model.safetensors")
    name = "model.layers.0.self_attn.o_proj.weight"
    flat = moved[name].view(-1)
    at = int(flat.abs().argmax())
    flat[at] = torch.nextafter(flat[at], torch.tensor(np.inf))
    (tmp_path / "ref").mkdir()
    save_file(moved, tmp_path / "ref" / "model.safetensors")
    config = (llama_folder / "hf" / "config.json").read_text()
    (tmp_path / "ref" / "config.json").write_text(config)
    checkpoint = CheckpointSettings(
        hf_checkpoint=llama_folder / "hf", ref_load=tmp_path / "ref"
    )
    trainer = open_trainer(
        settings(
            llama_folder,
            checkpoint=checkpoint,
            megatron=MegatronSettings(ref_mode=mode),
        )
    )
    samples = random_samples(8)

    ref = np.concatenate(trainer.log_probs(samples, weights="ref").log_probs)
    actor = np.concatenate(trainer.log_probs(samples).log_probs)

    assert (ref != actor).sum() > 0
    np.testing.assert_allclose(ref, actor, atol=1e-4)


def test_reference_weights_leave_when_the_pass_fails(llama_folder, open_trainer):
    trainer = open_trainer(
        settings(llama_folder, **with_reference(llama_folder, "hf", "swap"))
    )
    before = trainer.fingerprint()
    with pytest.raises(RuntimeError, match="planned"), trainer.weights("ref") as model:
        for parameter in model.model.parameters():
            parameter.data.zero_()
        raise RuntimeError("planned")
    assert trainer.fingerprint() == before


def test_dynamic_micro_batches_give_the_same_scores(llama_folder, open_trainer):
    samples = random_samples(12)
    fixed = open_trainer(settings(llama_folder)).log_probs(samples)
    batch = BatchSettings(
        rollout_batch_size=3,
        n_samples_per_prompt=4,
        global_batch_size=12,
        use_dynamic_batch_size=True,
        max_tokens_per_gpu=64,
        log_probs_max_tokens_per_gpu=64,
    )
    dynamic = open_trainer(settings(llama_folder, batch=batch)).log_probs(samples)

    for a, b in zip(fixed.log_probs, dynamic.log_probs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)
    rows: dict[int, list[int]] = {}
    for place in dynamic.micro_batches:
        rows.setdefault(place.micro_batch, []).append(place.padded_length)
    assert 1 < len(rows) < 12
    assert all(sum(lengths) <= 64 for lengths in rows.values())


BAD = {
    "unknown family": ({"model_type": "gpt2"}, "gpt2"),
    "biased llama": ({"attention_bias": True}, "attention_bias"),
    "other rope": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}},
        "yarn",
    ),
    "wrong width": ({"intermediate_size": 128}, "shape"),
    "wrong vocabulary": ({"vocab_size": 198}, "198"),
    "more layers": ({"num_hidden_layers": 3}, "layers.2"),
    "fewer layers": ({"num_hidden_layers": 1}, "layers.1"),
}


@pytest.mark.parametrize(("changes", "said"), BAD.values(), ids=BAD)
def test_checkpoints_that_do_not_fit_are_refused(
    changes, said, llama_folder, tmp_path, open_trainer
):
    config = json.loads((llama_folder / "hf" / "config.json").read_text())
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | changes))
    weights = (llama_folder / "hf" / "model.safetensors").read_bytes()
    (tmp_path / "hf" / "model.safetensors").write_bytes(weights)
    with pytest.raises(ArgumentError, match=said):
        open_trainer(settings(tmp_path))


def test_damaged_weights_are_refused(llama_folder, tmp_path, open_trainer):
    (tmp_path / "hf").mkdir()
    for name in ("config.json", "model.safetensors"):
        data = (llama_folder / "hf" / name).read_bytes()
        (tmp_path / "hf" / name).write_bytes(
            data[: len(data) // 2] if "safe" in name else data
        )
    with pytest.raises(ArgumentError, match="safetensors"):
        open_trainer(settings(tmp_path))


REFUSED = {
    "contradicts the shape": ({"hidden_size": 128}, "--hidden-size 128"),
    "no such field": ({"hiden_dropout": 0.0}, "hiden_dropout"),
    "dropout on CPU": ({"hidden_dropout": 0.1}, "--hidden-dropout 0.1"),
    "no dtype": ({"params_dtype": "float17"}, "float17"),
}


@pytest.mark.parametrize(("transformer", "said"), REFUSED.values(), ids=REFUSED)
def test_transformer_fields_that_cannot_work_are_refused(
    transformer, said, llama_folder, open_trainer
):
    told = settings(llama_folder, megatron=MegatronSettings(transformer=transformer))
    with pytest.raises(ArgumentError, match=said):
        open_trainer(told)


def test_layouts_that_do_not_divide_are_refused(llama_folder, open_trainer):
    told = settings(llama_folder, layout=LayoutSettings(tensor_model_parallel_size=2))
    with pytest.raises(ArgumentError, match="--tensor-model-parallel-size 2"):
        open_trainer(told)


def test_a_sample_without_a_prompt_is_refused(llama_folder, open_trainer):
    trainer = open_trainer(settings(llama_folder))
    sample = random_samples(1)[0]
    total = len(sample.tokens)
    bad = replace(
        sample,
        response_length=total,
        loss_mask=np.ones(total, np.int8),
        rollout_log_probs=None,
    )
    with pytest.raises(ArgumentError, match="prompt"):
        trainer.log_probs([bad])
    tokens = sample.tokens.copy()
    tokens[2] = VOCAB_SIZE
    with pytest.raises(ArgumentError, match=f"token {VOCAB_SIZE} at position 2"):
        trainer.log_probs([replace(sample, tokens=tokens)])
    short = replace(sample, loss_mask=sample.loss_mask[:-1])
    with pytest.raises(ArgumentError, match="loss_mask"):
        trainer.log_probs([short])
