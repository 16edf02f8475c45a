"""Wrong input for an SGLang server: one sentence each, nothing left running."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from aiohttp import web

from relax.backends.sglang.api import SglangApi
from relax.backends.sglang.capabilities import probe
from relax.backends.sglang.command import ServerSettings
from relax.backends.sglang.engine import ModelFacts, SglangEngine
from relax.backends.sglang.environment import sglang_python
from relax.backends.sglang.server import ServerProcess
from relax.errors import EngineDied, EngineError, EngineMismatch, EngineUnreachable

pytestmark = pytest.mark.engine


def closed_port():
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return probe_socket.getsockname()[1]


def server(tmp_path, words, *, code=1):
    """A process in the server's place that says some words and ends."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{words}\nEND\nexit {code}\n")
    script.chmod(0o755)
    return ServerProcess(
        ServerSettings(
            python=script,
            model=tmp_path,
            context_length=8,
            arguments={},
            has_gpu=True,
            threads=1,
            seed=0,
        ),
        log=tmp_path / "logs" / "sglang-0.log",
    )


async def test_nobody_answers_at_the_address():
    url = f"http://127.0.0.1:{closed_port()}"
    async with SglangApi(url, connections=1) as api:
        with pytest.raises(EngineUnreachable) as caught:
            await probe(api, has_gpu=False)
    assert url in str(caught.value)


async def other_paths(_request):
    return web.json_response({"paths": {"/v1/chat": {}}})


async def test_something_else_answers_there():
    site = web.Application()
    site.router.add_get("/openapi.json", other_paths)
    runner = web.AppRunner(site)
    await runner.setup()
    port = closed_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with SglangApi(f"http://127.0.0.1:{port}", connections=1) as api:
            with pytest.raises(EngineMismatch, match="not an SGLang server"):
                await probe(api, has_gpu=False)
    finally:
        await runner.cleanup()


async def test_a_folder_that_is_no_checkpoint_costs_no_start(tmp_path):
    with pytest.raises(EngineError) as caught:
        ModelFacts.read(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(caught.value)
    asked = server(tmp_path, "never started")
    with pytest.raises(EngineError, match="configuration cannot be read"):
        await SglangEngine.open(asked._settings, log=asked.log, connections=1)
    assert not asked.log.exists()


def test_an_interpreter_without_sglang_is_told_how_to_get_it():
    # The one that the environment was made from: it has no packages of its own.
    bare = Path(sys._base_executable)
    with pytest.raises(EngineError) as caught:
        sglang_python(bare)
    assert f"--sglang-python {bare}" in str(caught.value)
    assert f"{bare} -m pip install sglang==" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "INFO: started\nERROR:    [Errno 98] error while attempting to bind on "
            "address ('127.0.0.1', 30000): address already in use",
            "address already in use",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase "
            "--mem-fraction-static.",
            "Not enough memory",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "CUDA out of memory",
        ),
        ("/usr/bin/python: No module named sglang", "No module named sglang"),
        (
            "ValueError: Model architectures ['Foo'] are not supported for now.",
            "['Foo'] are not supported",
        ),
    ],
)
async def test_a_server_that_ends_at_its_start_is_quoted(tmp_path, words, told):
    process = server(tmp_path, words)
    with pytest.raises(EngineDied) as caught:
        await process.start()
    assert "ended with code 1" in caught.value.what
    assert told in caught.value.what
    assert caught.value.where == str(process.log)
    assert not Path(f"/proc/{process.pid}").exists()
