"""An agent on another node: what its processes write, how they end, what it leaves."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from relax.arguments.environment import child_environment, child_python_path
from relax.control.run_folder import process_start
from relax.controller.node_agent import NodeAgent
from relax.controller.survey import asking
from relax.errors import InternalError
from relax.observe.worker_process import log_path
from tests.process.runs import wait_until

WORKER = """
import sys, time
from pathlib import Path
from relax.observe.worker_process import prepare_worker
prepare_worker(Path(sys.argv[1]), "train-1")
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
async def opened(tmp_path, monkeypatch):
    """An agent that does not see the run folder, and its worker."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    run_dir = tmp_path / "run"
    agent = NodeAgent("run-1")
    with asking([run_dir], []) as question:
        (run_dir / question.outputs[run_dir]).unlink()  # a disk of its own
        said = await agent.open(question, run_dir=run_dir)
    command = [sys.executable, "-c", WORKER, str(said.spool)]
    python_path = child_environment({"PYTHONPATH": child_python_path()})
    with subprocess.Popen(command, env=python_path) as worker:
        try:
            await agent.watch_process(worker.pid)
            log = log_path(said.spool, "train-1")
            assert wait_until(lambda: log.exists() and log.read_text(), seconds=30)
            yield agent, said.spool, worker
        finally:
            worker.kill()
            await agent.leave()


async def test_it_hands_out_what_a_worker_wrote_and_how_much_it_uses(opened):
    agent, _, worker = opened
    beat = await agent.beat({})
    assert beat.taken.pieces["logs/train-1.log"] == b"up\n"
    assert beat.usage[worker.pid].memory_bytes > 1 << 20
    again = await agent.beat({"logs/train-1.log": 3})
    assert "logs/train-1.log" not in again.taken.pieces


async def test_it_asks_for_stacks_of_the_runs_processes_only(opened):
    agent, spool, worker = opened
    assert await agent.write_stacks({"train-1": worker.pid}) == {}
    assert "MainThread" in (spool / "logs" / "stacks-train-1.txt").read_text()
    with pytest.raises(InternalError, match="not of this run"):
        await agent.write_stacks({"init": 1})


async def test_a_process_that_does_not_end_is_killed_and_the_spool_removed(opened):
    agent, spool, worker = opened
    assert await agent.end(seconds=0.1) == (worker.pid,)
    worker.wait(30)
    assert await agent.end(seconds=5) == ()
    gone = {"train-1": f"pid {worker.pid} is gone"}
    assert await agent.write_stacks({"train-1": worker.pid}) == gone
    last = await agent.beat({})
    assert last.taken.pieces["logs/train-1.log"] == b"up\n"
    assert last.usage == {}
    await agent.leave()
    assert not spool.exists()
    assert process_start(worker.pid) == 0


async def test_where_the_run_folder_is_seen_nothing_is_carried(tmp_path):
    agent = NodeAgent("run-1")
    run_dir = tmp_path / "run"
    with asking([run_dir], []) as question:
        said = await agent.open(question, run_dir=run_dir)
    assert said.spool is None
    assert (await agent.beat({})).taken is None
    await agent.leave()
