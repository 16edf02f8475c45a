"""A real SGLang server against the suite of rollout engines, and its own promises."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import torch
from rollout_backend import RolloutBackendSuite, greedy, named, request, update
from sglang_servers import SGLANG, open_server, settings
from tiny_checkpoints import character_tokenizer, save_checkpoint
from transformers import AutoModelForCausalLM

from relax.backends.sglang.engine import ModelFacts, SglangEngine
from relax.backends.sglang.server import session_members
from relax.errors import EngineDied, EngineError

pytestmark = SGLANG


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def checkpoints(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return [
        save_checkpoint(folder / str(seed), family=request.param, seed=seed)
        for seed in range(2)
    ]


@pytest.fixture(scope="module")
def server(checkpoints, tmp_path_factory):
    log = tmp_path_factory.mktemp("logs") / "sglang-0.log"
    with open_server(checkpoints[0], log=log) as server:
        yield server


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
async def backend(server, checkpoints, reference):
    engine = await SglangEngine.attach(
        server,
        has_gpu=False,
        model=ModelFacts.read(checkpoints[0]),
        connections=1_000,
    )
    # The server outlives a test, and what the last one did to it does not.
    await update(engine, named(reference), version="checkpoint")
    yield engine
    await engine.resume()
    await engine.detach()


class TestSglang(RolloutBackendSuite):
    draws_by_seed = False
    """SGLang's deterministic inference does not run on a CPU."""

    async def test_the_witness_sees_every_tensor_of_the_checkpoint(
        self, backend, reference
    ):
        report = await backend.weights_report()
        assert report["tensors"].keys() == named(reference).keys()
        assert any("cos_sin" in name for name in report["buffers"])

    async def test_weights_can_be_written_out(self, backend, reference, tmp_path):
        await backend.weights_report(values=tmp_path)
        for name, tensor in named(reference).items():
            assert torch.equal(torch.load(tmp_path / f"{name}.pt"), tensor)

    async def test_weights_that_are_not_finite_stay_visible(self, backend, reference):
        tensors = {name: t.clone() for name, t in named(reference).items()}
        tensors["model.norm.weight"][0] = float("nan")
        await update(backend, tensors, version="nan")
        report = await backend.weights_report()
        assert not report["tensors"]["model.norm.weight"]["finite"]
        output = await backend.generate(request(max_new_tokens=4))
        assert len(output.log_probs) == len(output.output_ids)
        assert all(value != value for value in output.log_probs)  # NaN


async def test_death_of_its_scheduler_is_noticed(tmp_path):
    checkpoint = save_checkpoint(tmp_path / "model", family="qwen3")
    engine = await SglangEngine.open(
        settings(checkpoint), log=tmp_path / "sglang.log", connections=8
    )
    try:
        long = {**greedy(), "max_new_tokens": 90}
        tasks = [
            asyncio.create_task(engine.generate(request(**long))) for _ in range(4)
        ]
        os.kill(server_part(engine.pid, "scheduler"), signal.SIGKILL)
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(answer) for answer in answers} == {EngineDied}
        assert "scheduler" in str(answers[0])
    finally:
        await engine.close()
    assert not session_members(engine.pid)


async def test_a_server_that_cannot_start_says_why(tmp_path):
    checkpoint = save_checkpoint(tmp_path / "model", family="qwen3")
    (checkpoint / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(EngineError):
        await SglangEngine.open(
            settings(checkpoint), log=tmp_path / "sglang.log", connections=8
        )


def server_part(session: int, name: str) -> int:
    """Pid of the scheduler or the detokenizer."""
    for pid in session_members(session):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1")
        if f"sglang::{name}" in title:
            return pid
    raise AssertionError(f"no {name} in session {session}")
