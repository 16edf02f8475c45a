"""Rewards: what counts as one, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.arguments.groups import RewardSettings
from relax.engine.rewards.outcome import outcome_of
from relax.engine.rewards.pool import RewardPool
from relax.engine.rewards.registry import built_in_reward
from relax.engine.rewards.worker import RewardWorker
from relax.engine.rollout.sample import Sample
from relax.errors import ArgumentError, WorkerError


async def by_index(args, sample, **kwargs):
    return args[sample.index]


def plain(args, sample):
    return {"score": sample.index, "style": 0.5}


async def group_ranks(args, samples, **kwargs):
    return [float(place) for place in range(len(samples))]


async def one_too_few(args, samples):
    return [0.0]


async def raises(args, sample):
    raise KeyError("answer")


def takes_one(sample):
    return 0.0


def here(function) -> str:
    return f"{__name__}.{function.__name__}"


async def scored(settings, samples, *, arguments=None):
    worker = RewardWorker(settings, arguments=arguments)
    outcomes = await worker.score([sample.to_dict() for sample in samples])
    return pickle.loads(pickle.dumps(outcomes))


def answered(response: str, *, label: str | None = "85", **fields) -> Sample:
    return Sample(response=response, label=label, index=0, **fields)


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("40+30=70, 7+8=15, so it is 85.", "85", 1.0),
        ("85 or 86", "85", 0.0),
        ("so 85.0", "85", 1.0),
        ("1,085", "1085", 1.0),
        ("90-5", "5", 1.0),
        ("it is -5", "-5", 1.0),
        ("no idea", "85", 0.0),
        ("", "85", 0.0),
        ("8.5e", "8.5", 1.0),
        ("85<eos>", "85", 1.0),
    ],
)
def test_last_number(response, label, reward):
    sample = answered(response, label=label, metadata={"stop_text": "<eos>"})
    assert built_in_reward("last_number")(sample) == reward


@given(st.integers(-(10**9), 10**9), st.text(alphabet=" abc=.", max_size=20))
def test_last_number_finds_every_integer_at_the_end(number, before):
    sample = answered(f"{before} {number}.", label=str(number))
    assert built_in_reward("last_number")(sample) == 1.0


def test_exact_match_leaves_the_stop_text_out():
    match = built_in_reward("exact_match")
    assert match(answered(" 85\n<|im_end|>", metadata={"stop_text": "<|im_end|>"})) == 1
    assert match(answered("85 <|im_end|>")) == 0
    assert match(answered("it is 85")) == 0


def test_random_rewards_are_the_same_again():
    reward = built_in_reward("random")
    values = [reward(Sample(index=index)) for index in range(64)]
    assert values == [reward(Sample(index=index)) for index in range(64)]
    assert set(values) == {0.0, 1.0}


@pytest.mark.parametrize("rm_type", ["exact_match", "last_number"])
async def test_a_missing_label_is_a_failure(rm_type):
    settings = RewardSettings(rm_type=rm_type)
    (outcome,) = await scored(settings, [answered("85", label=None)])
    assert outcome.reward is None
    assert "no label" in outcome.failure


async def test_a_label_that_is_no_number_is_a_failure():
    settings = RewardSettings(rm_type="last_number")
    (outcome,) = await scored(settings, [answered("85", label="many")])
    assert outcome.reward is None
    assert "not a number" in outcome.failure


@pytest.mark.parametrize(
    "value", [None, math.nan, math.inf, -math.inf, "1.0", [1.0], np.float32("nan")]
)
async def test_what_is_no_finite_number_is_a_failure_and_never_zero(value):
    settings = RewardSettings(custom_rm_path=here(by_index))
    samples = [Sample(index=0), Sample(index=1)]
    bad, good = await scored(settings, samples, arguments=[value, 0.0])
    assert bad.reward is None
    assert bad.failure.startswith("the reward is")
    assert (good.reward, good.failure) == (0.0, "")


@pytest.mark.parametrize("value", [True, 1, np.float32(1), np.int64(1), 1.0])
def test_numbers_of_any_type_count(value):
    outcome = outcome_of(value, reward_key=None)
    assert outcome.reward == 1.0
    assert type(outcome.reward) is float


async def test_dicts_need_a_key():
    samples = [Sample(index=3)]
    settings = RewardSettings(custom_rm_path=here(plain), reward_key="score")
    (outcome,) = await scored(settings, samples)
    assert outcome.reward == {"score": 3, "style": 0.5}
    for key in (None, "absent"):
        settings = RewardSettings(custom_rm_path=here(plain), reward_key=key)
        (outcome,) = await scored(settings, samples)
        assert outcome.reward is None
        assert "--reward-key" in outcome.failure


async def test_a_reward_that_raises_says_where():
    settings = RewardSettings(custom_rm_path=here(raises))
    (outcome,) = await scored(settings, [Sample(index=0)])
    assert outcome.reward is None
    assert "KeyError: 'answer'" in outcome.failure
    assert "test_rewards.py" in outcome.failure


async def test_groups_are_scored_in_one_call():
    samples = [Sample(index=index) for index in range(3)]
    settings = RewardSettings(custom_rm_path=here(group_ranks), group_rm=True)
    assert [o.reward for o in await scored(settings, samples)] == [0.0, 1.0, 2.0]
    settings = RewardSettings(custom_rm_path=here(one_too_few), group_rm=True)
    outcomes = await scored(settings, samples)
    assert [o.reward for o in outcomes] == [None] * 3
    assert "1 rewards came back for 3" in outcomes[0].failure


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (RewardSettings(), "--rm-type"),
        (RewardSettings(rm_type="exact_mach"), "exact_match"),
        (RewardSettings(custom_rm_path="no.such.reward"), "no.such.reward"),
        (RewardSettings(custom_rm_path=f"{__name__}.takes_one"), "takes_one"),
    ],
)
def test_rewards_that_cannot_be_used_are_refused_at_once(settings, says):
    with pytest.raises(ArgumentError, match=says):
        RewardWorker(settings)


async def test_a_pool_spreads_and_bounds_its_calls():
    class Held:
        def __init__(self):
            self.calls, self.gate = 0, asyncio.Event()

        async def score(self, samples):
            self.calls += 1
            await self.gate.wait()
            return [outcome_of(1.0, reward_key=None) for _ in samples]

    workers = [Held(), Held()]
    pool = RewardPool(workers, max_concurrency=4)
    tasks = [asyncio.create_task(pool.score([Sample()])) for _ in range(6)]
    while sum(worker.calls for worker in workers) < 4:
        await asyncio.sleep(0)
    assert [worker.calls for worker in workers] == [2, 2]
    for worker in workers:
        worker.gate.set()
    assert len(await asyncio.gather(*tasks)) == 6


async def test_a_worker_that_answers_too_little_is_named():
    class Short:
        async def score(self, samples):
            return []

    pool = RewardPool([Short()], max_concurrency=1)
    with pytest.raises(WorkerError, match="0 outcomes for 1"):
        await pool.score([Sample()])
