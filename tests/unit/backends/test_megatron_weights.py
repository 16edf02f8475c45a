"""Fusing and splitting weights, and the table of rules, without a model."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relax.backends.fingerprint import fingerprint_tensors
from relax.backends.megatron.convert.fuse import fuse, pad_rows, split
from relax.backends.megatron.convert.table import Fuse, rules_of
from relax.backends.megatron.model.hf_config import (
    ExpertsShape,
    ModelShape,
    model_shape,
)
from relax.backends.megatron.sync.export import buckets
from relax.errors import ArgumentError

BASE = ModelShape(
    family="llama",
    num_layers=2,
    hidden_size=8,
    ffn_hidden_size=12,
    num_attention_heads=4,
    num_query_groups=2,
    kv_channels=3,
    vocab_size=11,
    max_position_embeddings=32,
    rotary_base=1e4,
    rope_scaling_factor=None,
    norm_epsilon=1e-6,
    tied_embeddings=False,
    qkv_bias=False,
    qk_norm=False,
)


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 4),
    per_group=st.integers(1, 4),
    width=st.integers(1, 5),
    columns=st.one_of(st.none(), st.integers(1, 6)),
    seed=st.integers(0, 2**16),
)
def test_splitting_what_was_fused_is_the_identity(
    groups, per_group, width, columns, seed
):
    generator = torch.Generator().manual_seed(seed)

    def random(rows: int) -> torch.Tensor:
        shape = (rows,) if columns is None else (rows, columns)
        bits = torch.randint(-(2**31), 2**31 - 1, shape, generator=generator)
        return bits.to(torch.int32).view(torch.float32)  # any bits, NaN included

    shape = dataclasses.replace(
        BASE,
        num_attention_heads=groups * per_group,
        num_query_groups=groups,
        kv_channels=width,
    )
    kv = groups * width
    cases = {
        Fuse.QKV: [random(kv * per_group), random(kv), random(kv)],
        Fuse.GATE_UP: [random(6), random(6)],
        Fuse.COPY: [random(5)],
    }
    for how, parts in cases.items():
        back = split(fuse(parts, how, shape), how, shape)
        for part, again in zip(parts, back, strict=True):
            assert torch.equal(part.view(torch.int32), again.view(torch.int32))


def test_queries_of_a_group_come_before_its_key_and_value():
    width = BASE.kv_channels
    query, key, value = numbered(12, 1), 100 + numbered(6, 1), 200 + numbered(6, 1)
    heads = fuse([query, key, value], Fuse.QKV, BASE).reshape(8, width)
    order = [0, 3, 100, 200, 6, 9, 103, 203]  # first row of each head
    assert heads[:, 0].tolist() == order


@pytest.mark.parametrize("size", [1, 2])
def test_cutting_each_part_and_fusing_is_the_rank_s_rows(size):
    """A tensor rank holds whole groups of the fused matrix."""
    parts = [torch.randn(12, 8), torch.randn(6, 8), torch.randn(6, 8)]
    whole = fuse(parts, Fuse.QKV, BASE)
    ranks = [
        fuse([part.chunk(size)[rank] for part in parts], Fuse.QKV, BASE)
        for rank in range(size)
    ]
    assert torch.equal(torch.cat(ranks), whole)


def test_padding_appends_zeros():
    padded = pad_rows(numbered(3, 2) + 1, 5)
    assert padded.shape == (5, 2)
    assert (padded[3:] == 0).all()
    assert (padded[:3] == numbered(3, 2) + 1).all()


EXPERTS = ExpertsShape(count=3, per_token=2, ffn_hidden_size=4, renormalised=True)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "qwen3_moe"])
@pytest.mark.parametrize("tied", [True, False])
def test_no_tensor_has_two_rules(family, tied):
    shape = dataclasses.replace(
        BASE,
        family=family,
        tied_embeddings=tied,
        experts=EXPERTS if family == "qwen3_moe" else None,
    )
    rules = rules_of(shape)
    hf = [name for rule in rules for name in rule.hf]
    megatron = [rule.megatron for rule in rules]
    assert len(hf) == len(set(hf))
    assert len(megatron) == len(set(megatron))
    assert not any("{" in name for name in hf + megatron)
    assert ("lm_head.weight" in hf) is not tied


CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "vocab_size": 11,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
}


MOE = CONFIG | {
    "model_type": "qwen3_moe",
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 4,
}


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_experts_are_read_under_both_their_names(key):
    shape = model_shape(MOE | {key: 3, "norm_topk_prob": True})
    assert shape.experts == EXPERTS
    assert shape.qk_norm
    rules = {rule.megatron: rule for rule in rules_of(shape)}
    rule = rules["decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight"]
    assert rule.expert == 2
    assert rule.hf == (
        "model.layers.1.mlp.experts.2.gate_proj.weight",
        "model.layers.1.mlp.experts.2.up_proj.weight",
    )
    assert rules["decoder.layers.1.mlp.router.weight"].split is None
    assert "decoder.layers.1.mlp.linear_fc1.weight" not in rules


@pytest.mark.parametrize(
    "variant", [{"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}]
)
def test_models_whose_layers_differ_are_refused(variant):
    with pytest.raises(ArgumentError, match=next(iter(variant))):
        model_shape(MOE | {"num_experts": 3} | variant)
    with pytest.raises(ArgumentError, match="num_experts"):
        model_shape(MOE)


def test_absent_keys_take_the_family_s_defaults():
    shape = model_shape(CONFIG)
    assert (shape.num_query_groups, shape.kv_channels) == (4, 2)
    assert (shape.rotary_base, shape.rope_scaling_factor) == (10000.0, None)
    assert model_shape(CONFIG | {"model_type": "qwen3"}).kv_channels == 128


def test_old_and_new_spelling_of_the_rotary_base():
    old = model_shape(CONFIG | {"rope_theta": 5e5})
    new = model_shape(
        CONFIG | {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
    )
    assert old == new
    assert new.rotary_base == 5e5


def test_llama3_scaling_is_carried_or_refused():
    rope = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = CONFIG | {"rope_theta": 5e5, "rope_scaling": rope}
    shape = model_shape(config)
    assert (shape.rotary_base, shape.rope_scaling_factor) == (5e5, 32.0)
    with pytest.raises(ArgumentError, match="low_freq_factor"):
        model_shape(config | {"rope_scaling": rope | {"low_freq_factor": 2.0}})


@pytest.mark.parametrize("key", ["hidden_size", "rms_norm_eps", "vocab_size"])
def test_a_missing_key_is_named(key):
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(ArgumentError, match=key):
        model_shape(config)


@given(
    sizes=st.lists(st.integers(1, 50), max_size=20), bucket_bytes=st.integers(1, 300)
)
@settings(max_examples=60, deadline=None)
def test_buckets_hold_everything_once_and_within_their_size(sizes, bucket_bytes):
    tensors = [(f"t{i}", numbered(size)) for i, size in enumerate(sizes)]
    seen = []
    for bucket in buckets(tensors, bucket_bytes=bucket_bytes):
        assert bucket
        size = sum(tensor.nbytes for tensor in bucket.values())
        assert size <= bucket_bytes or len(bucket) == 1
        seen += bucket.items()
    assert [name for name, _ in seen] == [name for name, _ in tensors]
    assert fingerprint_tensors(seen) == fingerprint_tensors(tensors)


def test_a_bucket_is_a_copy():
    source = torch.zeros(4)
    (bucket,) = buckets([("t", source)], bucket_bytes=64)
    source.fill_(1)
    assert (bucket["t"] == 0).all()
