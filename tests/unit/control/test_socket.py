"""The socket: who may talk, in which protocol, and what a client is told in silence."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys

import aiohttp
import pytest
from scripted_hands import ScriptedRun, run_info, scripted_run

from relax.control.client import RunClient
from relax.control.run_folder import socket_path, write_run_info
from relax.errors import ControlError
from relax.events.types import CommandKind

NOBODY = 65534


async def post(run: ScriptedRun, body: str) -> tuple[int, str]:
    connector = aiohttp.UnixConnector(path=str(run.socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post("http://run/v1/command", data=body) as response,
    ):
        return response.status, await response.text()


async def test_another_protocol_is_refused_with_ours(run: ScriptedRun):
    request = {"protocol": 99, "id": "a", "by": "x", "kind": "pause"}
    status, text = await post(run, json.dumps(request))
    assert (status, text) == (400, "the run speaks protocol 1, not 99")
    assert run.controller.state.wish is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("{", "JSON"),
        ('{"id": "a", "by": "x", "kind": "explode"}', "kind"),
        ('{"id": "", "by": "x", "kind": "pause"}', "id"),
        ('{"id": "a", "by": "x", "kind": "pause", "hurry": 1}', "hurry"),
    ],
)
async def test_what_is_not_a_command_is_named(run: ScriptedRun, body, named):
    status, text = await post(run, body)
    assert status == 400
    assert named in text


async def test_only_its_owner_can_open_the_socket(run: ScriptedRun):
    assert stat.S_IMODE(run.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(run.socket.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
async def test_another_user_is_turned_away_even_past_the_modes(run, runtime):
    for path, mode in (
        (runtime, 0o755),
        (run.socket.parent, 0o755),
        (run.socket, 0o666),
    ):
        path.chmod(mode)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as client:
        os.seteuid(NOBODY)
        try:
            client.connect(str(run.socket))
        finally:
            os.seteuid(0)
        client.setblocking(False)
        request = b"GET /v1/status HTTP/1.1\r\nHost: run\r\nConnection: close\r\n\r\n"
        await loop.sock_sendall(client, request)
        answer = await loop.sock_recv(client, 4096)
    assert answer.startswith(b"HTTP/1.1 403")


async def test_a_socket_left_by_a_dead_driver_is_replaced(tmp_path):
    path = socket_path("r-1")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with scripted_run(tmp_path / "run") as run:
        assert (await run.client.status()).run_id == "r-1"
    assert not path.exists()


async def test_a_run_folder_path_of_180_characters_is_served(tmp_path):
    deep = tmp_path / ("x" * (180 - len(str(tmp_path)) - 1))
    assert len(str(deep)) == 180
    async with scripted_run(deep) as run:
        assert (await run.client.status()).run_id == "r-1"


async def test_a_lost_run_is_told_from_a_busy_one(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    info = run_info(socket_file=socket_path("r-2"), pid=gone.pid, process_start=5)
    write_run_info(tmp_path, info)
    client = RunClient(tmp_path)
    with pytest.raises(ControlError, match="the run was lost"):
        await client.status()
    write_run_info(tmp_path, run_info(socket_file=socket_path("r-2")))
    with pytest.raises(ControlError, match="lives but is busy"):
        await client.status()
    write_run_info(tmp_path, run_info(socket_file=socket_path("r-2"), host="node7"))
    with pytest.raises(ControlError, match="ssh node7"):
        await client.status()
    await client.close()


async def test_a_run_without_control_says_so(tmp_path):
    write_run_info(tmp_path, run_info())
    with pytest.raises(ControlError, match="--no-control"):
        await RunClient(tmp_path).command(CommandKind.PAUSE)
