"""The embedded engine against the suite of rollout engines, and its own promises."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch
from rollout_backend import RolloutBackendSuite, ragged_requests, request, started
from tiny_checkpoints import character_tokenizer, save_checkpoint
from transformers import AutoModelForCausalLM

from relax.backends.embedded.engine import EmbeddedEngine
from relax.backends.rollout import Together
from relax.errors import EngineDied, EngineError


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def checkpoints(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return [
        save_checkpoint(folder / str(seed), family=request.param, seed=seed)
        for seed in range(2)
    ]


@pytest.fixture(scope="module")
def reference(checkpoints):
    return AutoModelForCausalLM.from_pretrained(checkpoints[0], dtype=torch.float32)


@pytest.fixture(scope="module")
def other(checkpoints):
    return AutoModelForCausalLM.from_pretrained(checkpoints[1], dtype=torch.float32)


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


@pytest.fixture
async def backend(checkpoints):
    # A third of the largest test's requests: rows leave and others join.
    engine = await EmbeddedEngine.open(checkpoints[0], batch_size=40, num_threads=1)
    yield engine
    await engine.close()


class TestEmbeddedEngine(RolloutBackendSuite):
    async def test_short_responses_do_not_wait_for_long_ones(self, backend):
        long = asyncio.create_task(
            backend.generate(request(max_new_tokens=90, temperature=0.0))
        )
        short = asyncio.create_task(backend.generate(request(max_new_tokens=1)))
        await short
        assert not long.done()
        await long

    async def test_more_requests_than_places_are_all_answered(self, checkpoints):
        requests = ragged_requests(10, vocab_size=40)
        answers = []
        for batch_size in (1, 3, 64):
            engine = await EmbeddedEngine.open(
                checkpoints[0], batch_size=batch_size, num_threads=1
            )
            answers.append(
                await asyncio.gather(*(engine.generate(each) for each in requests))
            )
            await engine.close()
        ids = [[output.output_ids for output in each] for each in answers]
        assert ids[0] == ids[1] == ids[2]

    async def test_abort_keeps_the_tokens_so_far(self, backend):
        whole = await backend.generate(request(max_new_tokens=90, temperature=0.0))
        task = asyncio.create_task(
            backend.generate(request(max_new_tokens=90, temperature=0.0))
        )
        while (await backend.health())["running"] == 0:
            await asyncio.sleep(0)
        assert await backend.abort() == 1
        output = await task
        assert output.finish == "abort"
        assert output.output_ids == whole.output_ids[: len(output.output_ids)]
        assert len(output.log_probs) == len(output.output_ids)

    async def test_paused_requests_would_block_an_update(self, backend):
        task = asyncio.create_task(
            backend.generate(request(temperature=0.0, max_new_tokens=90))
        )
        while (await backend.health())["running"] == 0:
            await asyncio.sleep(0)
        await backend.pause()
        with pytest.raises(EngineError, match="paused"):
            await backend.begin_weight_update("1")
        await backend.abort()
        await task
        await backend.begin_weight_update("1")

    async def test_close_fails_what_runs(self, checkpoints):
        engine = await EmbeddedEngine.open(checkpoints[0], batch_size=4, num_threads=1)
        await engine.pause()
        task = asyncio.create_task(engine.generate(request()))
        await started(engine, count=1)
        await engine.close()
        with pytest.raises(EngineDied):
            await task
        with pytest.raises(EngineDied):
            await engine.generate(request())
        assert not (await engine.health())["alive"]

    async def test_a_defect_in_the_model_reaches_everyone_who_waits(self, checkpoints):
        engine = await EmbeddedEngine.open(checkpoints[0], batch_size=2, num_threads=1)
        running = [
            asyncio.create_task(
                engine.generate(request(temperature=0.0, max_new_tokens=90))
            )
            for _ in range(5)
        ]
        while (await engine.health())["running"] < 2:
            await asyncio.sleep(0)
        # A weight of the wrong shape, put there behind the engine's back.
        module = engine._thread._loaded.module
        module.model.norm.weight = torch.nn.Parameter(torch.ones(3))
        answers = await asyncio.gather(*running, return_exceptions=True)
        assert {type(answer) for answer in answers} == {EngineDied}
        assert "RuntimeError" in str(answers[0])
        assert not (await engine.health())["alive"]
        with pytest.raises(EngineDied):
            await engine.abort()

    async def test_weights_that_are_not_finite_stay_visible(self, backend, reference):
        tensors = {name: t.clone() for name, t in reference.state_dict().items()}
        tensors["model.norm.weight"][0] = float("nan")
        if reference.config.tie_word_embeddings:
            del tensors["lm_head.weight"]
        await backend.begin_weight_update("nan")
        await backend.update_weights(tensors)
        await backend.end_weight_update()
        output = await backend.generate(request(max_new_tokens=4))
        assert len(output.output_ids) == 4
        assert all(value != value for value in output.log_probs)  # NaN

    async def test_a_folder_without_a_model_is_refused(self, tmp_path):
        with pytest.raises(EngineError, match="checkpoint"):
            await EmbeddedEngine.open(tmp_path, batch_size=4)


async def test_requests_sent_at_once_give_the_same_bits_however_they_arrive(
    checkpoints,
):
    requests = ragged_requests(24, vocab_size=40)
    together = [
        replace(each, together=Together(name="all", number=number, count=len(requests)))
        for number, each in enumerate(requests)
    ]
    answers = []
    for pause in (0.0, 0.02):
        engine = await EmbeddedEngine.open(checkpoints[0], batch_size=8, num_threads=1)
        arriving = []
        order = together if not pause else together[::-1]
        for each in order:
            arriving.append(asyncio.create_task(engine.generate(each)))
            await asyncio.sleep(pause)
        outputs = await asyncio.gather(*arriving)
        answers.append(outputs if not pause else outputs[::-1])
        await engine.close()
    for first, second in zip(*answers, strict=True):
        assert first.output_ids == second.output_ids
        assert first.log_probs.tobytes() == second.log_probs.tobytes()


def test_engines_that_take_turns_share_what_is_sent_at_once():
    shares = [Together(name="all", number=n, count=7).share(3) for n in range(7)]
    assert [(share.number, share.count) for share in shares] == [
        (0, 3), (0, 2), (0, 2), (1, 3), (1, 2), (1, 2), (2, 3),
    ]  # fmt: skip
