"""Trainer and engine against one independent forward pass of transformers.

200 ragged samples a family, sampled by the engine itself and then scored by the trainer
in padded batches. The independent pass is fp32, one sample at a time: no key-value
cache, no padding, no batch.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tiny_models import (
    VOCAB_SIZE,
    random_model,
    save_model,
    scores_by_transformers,
    settings,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from relax.backends.embedded.engine import EmbeddedEngine
from relax.backends.megatron.step.batch import TrainSample
from relax.backends.rollout import GenerateOutput, GenerateRequest, SamplingParams

SAMPLES = 200
TEMPERATURE = 0.8
BOUND = 1e-5


def save_with_tokenizer(model, folder):
    """The checkpoint, with a tokenizer of one word an id: the engine wants one."""
    save_model(model, folder)
    words = {f"w{number}": number for number in range(VOCAB_SIZE)}
    backend = Tokenizer(WordLevel(vocab=words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)


def requests():
    rng = np.random.default_rng(1)
    return [
        GenerateRequest(
            request_id=str(number),
            input_ids=tuple(rng.integers(0, VOCAB_SIZE, rng.integers(1, 12)).tolist()),
            sampling=SamplingParams(
                temperature=TEMPERATURE,
                top_p=1.0,
                top_k=-1,
                max_new_tokens=int(rng.integers(1, 25)),
                stop=(),
                stop_token_ids=(),
                seed=number,
                skip_special_tokens=False,
            ),
        )
        for number in range(SAMPLES)
    ]


async def generated(folder) -> list[GenerateOutput]:
    engine = await EmbeddedEngine.open(folder, batch_size=64, num_threads=1)
    try:
        return await asyncio.gather(*(engine.generate(each) for each in requests()))
    finally:
        await engine.close()


def sampled(folder) -> list[TrainSample]:
    outputs = asyncio.run(generated(folder))
    return [
        TrainSample(
            sample_index=number,
            tokens=np.array([*request.input_ids, *output.output_ids]),
            response_length=len(output.output_ids),
            loss_mask=np.ones(len(output.output_ids), dtype=np.int8),
            rollout_log_probs=output.log_probs,
            reward=0.0,
            group_index=number // 4,
        )
        for number, (request, output) in enumerate(
            zip(requests(), outputs, strict=True)
        )
    ]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_log_probs_of_200_ragged_samples(family, tmp_path, open_trainer):
    model = random_model(family, tied=family == "qwen3")
    save_with_tokenizer(model, tmp_path / "hf")
    samples = sampled(tmp_path / "hf")
    assert len({len(sample.tokens) for sample in samples}) > 20
    trainer = open_trainer(settings(tmp_path))

    by_trainer = trainer.log_probs(samples).log_probs

    for sample, log_probs in zip(samples, by_trainer, strict=True):
        expected, _ = scores_by_transformers(model, sample, temperature=TEMPERATURE)
        bound = BOUND * np.maximum(1.0, np.abs(expected))
        assert sample.response_length > 0
        assert (np.abs(log_probs - expected) <= bound).all(), sample.sample_index
        engine = sample.rollout_log_probs
        assert (np.abs(engine - expected) <= bound).all(), sample.sample_index
