"""What every rollout engine must hold to.

A subclass gives three fixtures:

    backend      an open engine with at least 8 requests at once and CONTEXT tokens
    reference    a transformers model of the weights that the engine was started with
    other        another transformers model of the same shape

and says by `draws_by_seed` whether the engine draws by the request's seed. What does
not ask for a seed is asked greedily, so that it has one answer.
"""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
import torch

from relax.backends.fingerprint import EMBEDDING, LM_HEAD, fingerprint_tensors
from relax.backends.rollout import GenerateOutput, GenerateRequest, SamplingParams
from relax.errors import EngineError, EngineMismatch

TOLERANCE = 1e-5
"""Of log-probs, times max(1, |x|); fp32 against an independent forward pass."""

DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_new_tokens": 24,
    "stop": (),
    "stop_token_ids": (),
    "seed": 0,
    "skip_special_tokens": False,
}


def request(prompt: tuple[int, ...] = (1, 5, 9), **sampling) -> GenerateRequest:
    return GenerateRequest(
        request_id=f"{prompt}",
        input_ids=prompt,
        sampling=SamplingParams(**{**DEFAULTS, **sampling}),
    )


def ragged_requests(
    count: int, *, vocab_size: int, **sampling
) -> list[GenerateRequest]:
    """Prompts of 1 to 30 tokens, temperatures of 0.6 to 1.4."""
    rng = random.Random(count)
    requests = []
    for seed in range(count):
        prompt = tuple(rng.randrange(3, vocab_size) for _ in range(rng.randint(1, 30)))
        temperature = rng.choice((0.6, 1.0, 1.4))
        requests.append(
            request(prompt, **{"seed": seed, "temperature": temperature, **sampling})
        )
    return requests


def full_forward(model, ask: GenerateRequest, output: GenerateOutput) -> np.ndarray:
    """Log-probs of the response by one pass: no cache, no padding, no batch."""
    ids = torch.tensor([[*ask.input_ids, *output.output_ids]])
    with torch.no_grad():
        logits = model(ids).logits[0].double() / (ask.sampling.temperature or 1.0)
    at = len(ask.input_ids)
    log_probs = torch.log_softmax(logits, dim=-1)[at - 1 : -1]
    return log_probs.gather(1, ids[0, at:, None])[:, 0].numpy()


def named(model) -> dict[str, torch.Tensor]:
    """The tensors a trainer sends: a tied output layer is not one of them."""
    tensors = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del tensors[LM_HEAD]
    return tensors


async def update(backend, tensors, *, version: str) -> str:
    """A whole update in buckets of three tensors."""
    await backend.begin_weight_update(version)
    items = list(tensors.items())
    for start in range(0, len(items), 3):
        await backend.update_weights(dict(items[start : start + 3]))
    return await backend.end_weight_update()


async def started(backend, *, count: int) -> None:
    """Wait until the engine has so many requests."""
    health = await backend.health()
    while health["running"] + health["waiting"] < count:
        await asyncio.sleep(0)
        health = await backend.health()


class RolloutBackendSuite:
    draws_by_seed = True

    async def all(self, backend, requests):
        return await asyncio.gather(*(backend.generate(each) for each in requests))

    async def test_log_probs_are_those_of_a_full_forward(self, backend, reference):
        requests = ragged_requests(120, vocab_size=reference.config.vocab_size)
        outputs = await self.all(backend, requests)
        for ask, output in zip(requests, outputs, strict=True):
            expected = full_forward(reference, ask, output)
            assert output.log_probs.dtype == np.float32
            assert output.log_probs.shape == expected.shape
            bound = TOLERANCE * np.maximum(1, np.abs(expected))
            assert np.all(np.abs(output.log_probs - expected) <= bound)

    async def test_log_probs_are_taken_before_the_cuts(self, backend, reference):
        requests = ragged_requests(
            16, vocab_size=reference.config.vocab_size, top_p=0.7, top_k=5
        )
        for ask, output in zip(
            requests, await self.all(backend, requests), strict=True
        ):
            expected = full_forward(reference, ask, output)
            np.testing.assert_allclose(output.log_probs, expected, atol=1e-4)

    async def test_cuts_keep_the_likely_tokens(self, backend, reference):
        requests = ragged_requests(
            16, vocab_size=reference.config.vocab_size, top_k=2, max_new_tokens=8
        )
        outputs = await self.all(backend, requests)
        seconds = 0
        for ask, output in zip(requests, outputs, strict=True):
            ids = torch.tensor([[*ask.input_ids, *output.output_ids]])
            with torch.no_grad():
                logits = reference(ids).logits[0, len(ask.input_ids) - 1 : -1]
            top = logits.topk(2).indices.tolist()
            for token, likely in zip(output.output_ids, top, strict=True):
                assert token in likely
                seconds += token == likely[1]
        assert seconds > 0

    async def test_temperature_zero_is_greedy(self, backend, reference):
        ask = request(temperature=0.0, max_new_tokens=12)
        first, second = await self.all(backend, [ask, request(seed=9, **greedy())])
        assert first.output_ids == second.output_ids
        ids = torch.tensor([[*ask.input_ids, *first.output_ids]])
        with torch.no_grad():
            best = reference(ids).logits[0, len(ask.input_ids) - 1 : -1].argmax(-1)
        assert tuple(best.tolist()) == first.output_ids

    async def test_a_seed_gives_the_same_tokens_alone_and_in_any_batch(
        self, backend, reference
    ):
        if not self.draws_by_seed:
            outputs = await self.all(backend, [request(seed=1) for _ in range(8)])
            assert len({output.output_ids for output in outputs}) > 1
            return
        requests = ragged_requests(24, vocab_size=reference.config.vocab_size)
        together = await self.all(backend, requests)
        reverse = (await self.all(backend, requests[::-1]))[::-1]
        for place in range(0, 24, 5):
            alone = await backend.generate(requests[place])
            assert alone.output_ids == together[place].output_ids
        assert [o.output_ids for o in together] == [o.output_ids for o in reverse]

    async def test_other_seeds_give_other_tokens(self, backend):
        outputs = await self.all(backend, [request(seed=seed) for seed in range(8)])
        assert len({output.output_ids for output in outputs}) > 4
        unseeded = await self.all(backend, [request(seed=None) for _ in range(4)])
        assert len({output.output_ids for output in unseeded}) > 1

    async def test_tokens_are_sampled_as_often_as_they_are_likely(
        self, backend, reference
    ):
        count, prompt = 600, (1, 7, 3)
        requests = [request(prompt, seed=s, max_new_tokens=1) for s in range(count)]
        seen = [output.output_ids[0] for output in await self.all(backend, requests)]
        with torch.no_grad():
            probs = reference(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        observed = np.bincount(seen, minlength=len(probs))
        expected = probs.double().numpy() * count
        likely = expected > 5
        chi_square = np.sum((observed - expected)[likely] ** 2 / expected[likely])
        # Mean and standard deviation of chi square with k degrees: k, sqrt(2 k).
        degrees = likely.sum()
        assert chi_square < degrees + 5 * np.sqrt(2 * degrees)

    async def test_length_ends_a_response(self, backend):
        output = await backend.generate(request(max_new_tokens=3, temperature=0.01))
        assert len(output.output_ids) <= 3
        outputs = await self.all(
            backend, [request(seed=s, max_new_tokens=3) for s in range(8)]
        )
        ended = [o for o in outputs if o.finish == "length"]
        assert ended
        assert all(len(o.output_ids) == 3 and o.stop_reason == "length" for o in ended)

    async def test_the_context_ends_a_response(self, backend, reference):
        context = reference.config.max_position_embeddings
        prompt = tuple(4 + place % 20 for place in range(context - 2))
        outputs = await self.all(backend, [request(prompt, seed=s) for s in range(8)])
        full = [output for output in outputs if output.finish == "length"]
        assert full
        assert {output.stop_reason for output in full} == {"context"}
        assert {len(output.output_ids) for output in full} == {2}

    async def test_the_model_s_end_token_ends_a_response(self, backend, reference):
        eos = reference.config.eos_token_id
        outputs = await self.all(
            backend, [request(seed=s, max_new_tokens=60) for s in range(24)]
        )
        stopped = [output for output in outputs if output.stop_reason == "eos"]
        assert stopped
        for output in outputs:
            assert eos not in output.output_ids[:-1]
        for output in stopped:
            assert output.finish == "stop"
            assert output.output_ids[-1] == eos

    async def test_stop_token_ids_end_a_response(self, backend):
        free = await backend.generate(request(**greedy()))
        stop = free.output_ids[len(free.output_ids) // 2]
        output = await backend.generate(request(**greedy(), stop_token_ids=(stop,)))
        length = free.output_ids.index(stop) + 1
        assert output.output_ids == free.output_ids[:length]
        assert (output.finish, output.stop_reason) == ("stop", "stop_token")

    async def test_stop_texts_end_a_response(self, backend, tokenizer):
        free = await backend.generate(request(**greedy()))
        text = tokenizer.decode(list(free.output_ids))
        stop = text[6:9]
        output = await backend.generate(request(**greedy(), stop=("never there", stop)))
        ended = tokenizer.decode(list(output.output_ids))
        assert text.startswith(ended)
        assert ended.endswith(stop)
        assert ended.index(stop) + len(stop) == len(ended)
        assert (output.finish, output.stop_reason) == ("stop", "stop_string")

    async def test_a_prompt_that_fills_the_context_fails_alone(
        self, backend, reference
    ):
        too_long = (5,) * reference.config.max_position_embeddings
        good, bad = await asyncio.gather(
            backend.generate(request()),
            backend.generate(request(too_long)),
            return_exceptions=True,
        )
        assert good.output_ids
        assert isinstance(bad, EngineError)
        assert str(len(too_long)) in str(bad)

    async def test_an_id_outside_the_vocabulary_fails_alone(self, backend, reference):
        outside = reference.config.vocab_size
        good, bad = await asyncio.gather(
            backend.generate(request()),
            backend.generate(request((5, outside))),
            return_exceptions=True,
        )
        assert good.output_ids
        assert isinstance(bad, EngineError)
        assert str(outside) in str(bad)

    async def test_abort_returns_what_there_is(self, backend):
        await backend.pause()
        tasks = [
            asyncio.create_task(backend.generate(request(seed=s))) for s in range(4)
        ]
        await started(backend, count=4)
        assert await backend.abort() == 4
        await backend.resume()
        outputs = await asyncio.gather(*tasks)
        for output in outputs:
            assert (output.finish, output.stop_reason) == ("abort", "abort")
            assert len(output.log_probs) == len(output.output_ids)
        assert await backend.abort() == 0
        assert (await backend.generate(request())).finish != "abort"

    async def test_an_update_changes_the_answers(self, backend, reference, other):
        before = await backend.generate(request(**greedy()))
        sent = fingerprint_tensors(named(other).items())
        assert await update(backend, named(other), version="7") == sent
        after = await backend.generate(request(**greedy()))
        assert after.weight_version == "7" != before.weight_version
        assert after.output_ids != before.output_ids
        expected = full_forward(other, request(**greedy()), after)
        np.testing.assert_allclose(after.log_probs, expected, atol=1e-4)
        await update(backend, named(reference), version="8")
        again = await backend.generate(request(**greedy()))
        assert again.output_ids == before.output_ids

    async def test_numpy_arrays_are_taken_too(self, backend, other):
        arrays = {}
        for name, tensor in named(other).items():
            arrays[name] = tensor.numpy().copy()
            arrays[name].flags.writeable = False
        sent = fingerprint_tensors(named(other).items())
        assert await update(backend, arrays, version="9") == sent

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda name, t: {f"{name}.extra": t}, "extra"),
            (lambda name, t: {name: t[:-1]}, EMBEDDING),
            (lambda name, t: {name: t.double()}, "float64"),
        ],
        ids=["unknown name", "other shape", "other type"],
    )
    async def test_a_tensor_that_does_not_fit_is_named(
        self, backend, reference, change, says
    ):
        await backend.begin_weight_update("1")
        bucket = change(EMBEDDING, named(reference)[EMBEDDING])
        with pytest.raises(EngineMismatch, match=says):
            await backend.update_weights(bucket)

    async def test_an_incomplete_update_is_refused_and_healed(self, backend, other):
        tensors = named(other)
        name, held_back = tensors.popitem()
        with pytest.raises(EngineMismatch, match=name):
            await update(backend, tensors, version="1")
        with pytest.raises(EngineError, match="incomplete"):
            await backend.generate(request())
        await update(backend, {**tensors, name: held_back}, version="2")
        assert (await backend.generate(request())).weight_version == "2"

    async def test_an_update_waits_for_what_is_being_generated(
        self, backend, reference, other
    ):
        running = [
            asyncio.create_task(
                backend.generate(request(temperature=0.0, max_new_tokens=90))
            )
            for _ in range(8)
        ]
        while (await backend.health())["running"] < 8:
            await asyncio.sleep(0)
        await backend.begin_weight_update("3")
        done = [task for task in running if task.done()]
        waiting = asyncio.create_task(backend.generate(request(seed=1)))
        await backend.update_weights(named(other))
        await backend.end_weight_update()
        outputs = await asyncio.gather(*running)
        assert len(done) == len(running)
        assert len({output.weight_version for output in outputs}) == 1
        assert (await waiting).weight_version == "3"

    async def test_updates_do_not_overlap(self, backend):
        await backend.begin_weight_update("1")
        with pytest.raises(EngineError, match="open"):
            await backend.begin_weight_update("2")

    async def test_pause_holds_and_resume_goes_on(self, backend):
        expected = await backend.generate(request(**greedy()))
        await backend.pause()
        task = asyncio.create_task(backend.generate(request(**greedy())))
        await started(backend, count=1)
        assert (await backend.health())["paused"]
        assert not task.done()
        await backend.resume()
        assert (await task).output_ids == expected.output_ids
        assert not (await backend.health())["paused"]

    async def test_health_says_what_is_there(self, backend):
        await backend.generate(request())
        health = await backend.health()
        assert health["alive"] is True
        assert (health["running"], health["waiting"]) == (0, 0)
        assert health["generated_tokens"] > 0


def greedy() -> dict[str, object]:
    return {"temperature": 0.0, "max_new_tokens": 12}
