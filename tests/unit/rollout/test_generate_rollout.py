"""The default rollout function over a scripted engine."""

from __future__ import annotations

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scripted import (
    CharacterTokenizer,
    ScriptedEngine,
    ScriptedScorer,
    client,
    output,
)

from relax.arguments.groups import DataSettings, RewardSettings, RolloutSettings
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rollout.data_source import PromptSettings, RolloutDataSource
from relax.engine.rollout.generation import sample_seed
from relax.engine.rollout.sample import SampleStatus
from relax.engine.rollout.sglang_rollout import generate_rollout
from relax.errors import ArgumentError, EngineDied, EngineError


def arguments(*, prompts: int = 2, group_rm: bool = False, **rollout):
    defaults = {"rollout_max_response_len": 8}
    return SimpleNamespace(
        data=DataSettings(rollout_seed=42),
        batch=SimpleNamespace(rollout_batch_size=prompts),
        reward=RewardSettings(group_rm=group_rm),
        rollout=RolloutSettings(**{**defaults, **rollout}),
    )


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "sums.jsonl"
    rows = [{"input": f"{n}+{n}=", "label": str(2 * n)} for n in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)))
    settings = PromptSettings(
        prompt_data=path, label_key="label", n_samples_per_prompt=3
    )
    return RolloutDataSource.open(settings, tokenizer=CharacterTokenizer())


async def test_samples_come_back_whole_and_sorted(source):
    engine = ScriptedEngine(lambda request: output())
    result = await generate_rollout(arguments(), 0, source, client(engine))
    assert [sample.index for sample in result.flat] == list(range(6))
    assert [sample.group_index for sample in result.flat] == [0, 0, 0, 1, 1, 1]
    first = result.flat[0]
    assert first.prompt == "0+0="
    assert first.tokens == [ord(c) for c in "0+0=42$"]
    assert (first.response, first.response_length) == ("42$", 3)
    assert first.answer == "42"
    assert first.reward == 1.0
    assert first.loss_mask == [1, 1, 1]
    assert first.status is SampleStatus.COMPLETED
    assert first.weight_versions == ["3"]
    assert result.metrics["rollout/num_failed"].value == 0


async def test_the_status_follows_the_finish(source):
    engine = ScriptedEngine(lambda request: output("1234"))
    result = await generate_rollout(arguments(), 0, source, client(engine))
    assert {s.status for s in result.flat} == {SampleStatus.TRUNCATED}
    assert {s.stop_reason for s in result.flat} == {"length"}
    assert all(s.reward == 1.0 for s in result.flat)


async def test_seeds_depend_on_the_sample_and_on_nothing_else(source):
    engine = ScriptedEngine(lambda request: output())
    await generate_rollout(arguments(), 0, source, client(engine))
    seeds = {request.request_id: request.sampling.seed for request in engine.requests}
    assert seeds == {f"0-{i}": sample_seed("42", index=i) for i in range(6)}
    assert len(set(seeds.values())) == 6
    assert all(0 <= seed < 2**63 for seed in seeds.values())


async def test_requests_in_flight_are_bounded(source):
    engine = ScriptedEngine(lambda request: output())
    await generate_rollout(
        arguments(prompts=4, sglang_server_concurrency=5), 0, source, client(engine)
    )
    assert engine.most_running == 5


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: output(log_probs=None), "no log-probs"),
        (lambda: output(log_probs=np.zeros(2, np.float32)), r"\(2,\) log-probs for 3"),
        (
            lambda: output(log_probs=np.array([-1, np.nan, -np.inf], np.float32)),
            "2 of 3 .* nan at position 1",
        ),
        (lambda: output(""), "no tokens"),
        (lambda: EngineError("it is too long"), "too long"),
    ],
    ids=["missing", "too few", "not finite", "empty", "refused"],
)
async def test_a_bad_answer_fails_its_sample_only(source, bad, says):
    engine = ScriptedEngine(lambda r: bad() if r.request_id == "0-1" else output())
    scorer = ScriptedScorer()
    result = await generate_rollout(
        arguments(), 0, source, client(engine, scorer=scorer)
    )
    failed = result.flat[1]
    assert failed.status is SampleStatus.FAILED
    assert re.search(says, failed.failure)
    assert failed.reward is None
    assert failed.loss_mask is None
    assert [1] not in scorer.calls
    assert {s.status for s in result.flat} == {
        SampleStatus.COMPLETED,
        SampleStatus.FAILED,
    }
    assert result.metrics["rollout/num_failed"].value == 1


async def test_a_reward_that_fails_fails_its_sample(source):
    def rule(sample):
        if sample.index == 2:
            return ScoreOutcome(reward=None, failure="the reward is nan")
        return 0.0

    engine = ScriptedEngine(lambda request: output())
    result = await generate_rollout(
        arguments(), 0, source, client(engine, scorer=ScriptedScorer(rule))
    )
    assert [s.reward for s in result.flat] == [0.0, 0.0, None, 0.0, 0.0, 0.0]
    assert result.flat[2].failure == "the reward is nan"


async def test_groups_are_scored_together(source):
    engine = ScriptedEngine(lambda request: output())
    scorer = ScriptedScorer()
    await generate_rollout(
        arguments(group_rm=True), 0, source, client(engine, scorer=scorer)
    )
    assert sorted(scorer.calls) == [[0, 1, 2], [3, 4, 5]]


async def test_a_group_with_a_failed_sample_is_not_scored(source):
    engine = ScriptedEngine(
        lambda r: EngineError("no") if r.request_id == "0-4" else output()
    )
    scorer = ScriptedScorer()
    result = await generate_rollout(
        arguments(group_rm=True), 0, source, client(engine, scorer=scorer)
    )
    assert scorer.calls == [[0, 1, 2]]
    assert [s.reward for s in result.flat] == [1.0, 1.0, 1.0, None, None, None]
    assert "sample 4 is failed" in result.flat[3].failure


async def test_an_abort_keeps_partial_samples(source):
    engine = ScriptedEngine(lambda r: None if r.request_id == "0-5" else output())
    seen = []
    result = await generate_rollout(
        arguments(),
        0,
        source,
        client(
            engine,
            on_sample=seen.append,
            should_abort=lambda: bool(engine.hanging) and len(seen) == 5,
        ),
    )
    partial = result.flat[5]
    assert partial.status is SampleStatus.ABORTED
    assert (partial.response, partial.response_length) == ("4", 1)
    assert (partial.reward, partial.abort_count) == (None, 1)
    assert [s.status for s in result.flat[:5]] == [SampleStatus.COMPLETED] * 5
    assert result.metrics["rollout/num_aborted"].value == 1


async def test_samples_that_did_not_start_are_aborted_too(source):
    engine = ScriptedEngine(lambda request: None)
    result = await generate_rollout(
        arguments(prompts=4, sglang_server_concurrency=2),
        0,
        source,
        client(engine, should_abort=lambda: bool(engine.hanging)),
    )
    assert {s.status for s in result.flat} == {SampleStatus.ABORTED}
    assert len(engine.requests) == 2
    assert sorted(s.response_length for s in result.flat)[-3:] == [0, 1, 1]


async def test_each_sample_is_reported_once_and_progress_adds_up(source):
    engine = ScriptedEngine(
        lambda r: EngineError("no") if r.request_id == "0-3" else output()
    )
    seen, progress = [], []
    await generate_rollout(
        arguments(),
        0,
        source,
        client(engine, on_sample=seen.append, on_progress=progress.append),
    )
    assert sorted(sample.index for sample in seen) == list(range(6))
    assert all(s.reward is not None or s.failure for s in seen)
    assert dataclasses.asdict(progress[-1]) == {
        "done": 6,
        "running": 0,
        "aborted": 0,
        "tokens": 15,
        "longest": 3,
        "total": 6,
    }
    assert max(each.running for each in progress) <= 6
    assert min(each.running for each in progress) == 0


async def test_a_dead_engine_ends_the_rollout(source):
    engine = ScriptedEngine(
        lambda r: EngineDied("gone") if r.request_id == "0-2" else None
    )
    with pytest.raises(EngineDied, match="gone"):
        await generate_rollout(arguments(), 0, source, client(engine))


async def test_log_lines_are_upstream_s_and_hold_hostile_text(source, caplog):
    caplog.set_level("INFO")
    engine = ScriptedEngine(lambda request: output("\x1b[2J'\n$"))
    await generate_rollout(arguments(), 7, source, client(engine))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("First rollout sample: [")
    assert lines[0].endswith(", label: 0, reward: 1.0")
    assert r"\x1b[2J'\n$" in lines[0]
    last = next(line for line in lines if line.startswith("Finish rollout: ["))
    assert last.endswith(", rollout_id: 7")
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(("stop", "reason"), [(("=",), "stop_string")])
async def test_the_text_that_stopped_is_known(source, stop, reason):
    engine = ScriptedEngine(
        lambda r: output("x 42=", finish="stop", stop_reason=reason)
    )
    result = await generate_rollout(
        arguments(rollout_stop=stop), 0, source, client(engine)
    )
    assert result.flat[0].answer == "x 42"


async def test_the_context_limit_shortens_responses(source):
    engine = ScriptedEngine(lambda request: output())
    await generate_rollout(
        arguments(rollout_max_context_len=9), 0, source, client(engine)
    )
    assert {r.sampling.max_new_tokens for r in engine.requests} == {5}


async def test_a_prompt_that_fills_the_context_fails(source):
    engine = ScriptedEngine(lambda request: output())
    result = await generate_rollout(
        arguments(rollout_max_context_len=4), 0, source, client(engine)
    )
    assert not engine.requests
    assert all("no room" in sample.failure for sample in result.flat)


async def test_no_limit_at_all_is_refused(source):
    engine = ScriptedEngine(lambda request: output())
    with pytest.raises(ArgumentError, match="rollout-max-response-len"):
        await generate_rollout(
            arguments(rollout_max_response_len=None), 0, source, client(engine)
        )


async def test_an_evaluation_goes_through_all_prompts(source):
    once = dataclasses.replace(source._settings, epochs=1, n_samples_per_prompt=1)
    data = RolloutDataSource.open(once, tokenizer=CharacterTokenizer())
    engine = ScriptedEngine(
        lambda r: EngineError("no") if r.request_id == "0-1" else output()
    )
    result = await generate_rollout(
        arguments(prompts=4), 0, data, client(engine), evaluation=True
    )
    rewards = result.data["sums"]["rewards"]
    assert rewards == [1.0, None, 1.0, 1.0, 1.0, 1.0]
    assert len(result.data["sums"]["samples"]) == 6
    train_seeds = {sample_seed("42", index=i) for i in range(6)}
    assert not train_seeds & {r.sampling.seed for r in engine.requests}
