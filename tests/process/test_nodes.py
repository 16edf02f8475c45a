"""Runs on a Ray cluster of two nodes that share no disk.

Both nodes live on this machine; the second has a mount namespace of its own, in which
the run folder is empty.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from relax.controller.reaper import descendants
from relax.events.types import (
    RunFailed,
    RunFinished,
    RunStarted,
    Stage,
    StageStarted,
    StartupProgress,
    TrainStep,
)
from relax.records.schema import StageFile
from tests.process.ray_nodes import can_unshare, ray_cluster
from tests.process.runs import (
    demo_without_reward,
    driver_pid,
    started,
    wait_until,
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not can_unshare(), reason="needs `unshare -m`: two nodes were not tested"
    ),
]

TWO_NODES = (
    *("--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1"),
    *("--rollout-num-gpus", "2", "--reward-num-workers", "2"),
    *("--custom-rm-path", "tests.process.telling_rewards.reward"),
)
"""Two ranks and two engines: four slots on nodes of one CPU each."""
EVERYONE = {"driver", "train-0", "train-1", "engine-0", "engine-1"} | {
    *("reward-0", "reward-1", "rollout-runner"),
}


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster() as cluster:
        yield cluster


def joining(cluster, run_dir, *flags):
    """A run on the cluster."""
    return started(
        run_dir,
        *("--ray-address", cluster.address, *TWO_NODES, *flags),
        config=demo_without_reward(run_dir.parent),
        environment=cluster.environment,
    )


def scored(run_dir: Path, worker: str) -> list[str]:
    """What a reward worker said that it scored."""
    path = run_dir / "logs" / f"{worker}.log"
    text = path.read_text() if path.exists() else ""
    return re.findall(r"scored (\d+) of", text)


def leftovers(cluster) -> list[Path]:
    """What the run's processes left on either node."""
    return [
        path
        for folder in cluster.folder.glob("tmp-*")
        for path in folder.glob("relax-*")
    ]


def test_nothing_is_lost_that_a_node_without_the_run_folder_produces(cluster, tmp_path):
    run_dir = tmp_path / "run"
    with (
        cluster.another(empty=run_dir),
        joining(cluster, run_dir, "--num-rollout", "2") as run,
    ):
        run.wait_for(TrainStep)
        status = run.status()
        assert status.processes.keys() == EVERYONE
        stacks = run.ask("stacks")
        assert stacks.stacks.keys() | stacks.missing.keys() == EVERYONE
        assert "train-1" in stacks.stacks
        here, there = run.of(RunStarted)[-1].nodes.values()
        assert here["shares_run_folder"]
        assert not there["shares_run_folder"]
        assert there["processes"] == ["engine-1", "reward-1", "train-1"]
        run.wait_for(RunFinished)
        assert run.end() == 0
        assert run.of(RunFinished)[0].killed == ()
        # All that both nodes' workers wrote is there, once.
        told = [scored(run_dir, f"reward-{number}") for number in range(2)]
        assert all(told)
        assert sorted(int(index) for part in told for index in part) == [*range(128)]
        for rollout_id in range(2):
            placed = run.record(rollout_id).table(StageFile.TRAIN)
            assert set(placed.column("rank").to_pylist()) == {0, 1}
        assert not list(run_dir.glob(".seen-*"))
        assert wait_until(lambda: leftovers(cluster) == [], seconds=15)


def test_a_node_that_is_killed_in_a_train_step_is_named(cluster, tmp_path):
    run_dir = tmp_path / "run"
    with (
        cluster.another(empty=run_dir) as node,
        joining(cluster, run_dir, "--inject-fault", "hung-rank") as run,
    ):
        # Rank 0 sleeps in the step of rollout 1, and rank 1 waits for it.
        run.wait(
            lambda: (
                (Stage.TRAIN, 1)
                in [(s.stage, s.rollout_id) for s in run.of(StageStarted)]
            )
        )
        node.kill()
        failed = run.wait_for(RunFailed, seconds=60)
        assert failed.code == "cluster"
        assert re.match(r"node \S+ \(.*\) was lost; on it ran .*train-1", failed.what)
        assert (failed.rollout_id, failed.stage) == (1, Stage.TRAIN)
        assert run.end() == 7


def test_a_node_with_another_version_is_refused_by_name(cluster, tmp_path):
    run_dir = tmp_path / "run"
    real = next(
        Path(str(file.locate()))
        for file in importlib.metadata.files("torch") or ()
        if file.name == "METADATA"
    )
    version = importlib.metadata.version("torch")
    other = tmp_path / "METADATA"
    other.write_text(
        real.read_text().replace(f"Version: {version}", "Version: 1.0.0", 1)
    )
    with (
        cluster.another(empty=run_dir, instead={real: other}),
        joining(cluster, run_dir) as run,
    ):
        failed = run.wait_for(RunFailed)
        assert failed.code == "cluster"
        assert re.match(r"node \S+ \(.*\) runs other software", failed.what)
        assert f"torch 1.0.0, not {version}" in failed.what
        assert run.end() == 7
        up = [p.what for p in run.of(StartupProgress) if p.done]
        assert "trainer" not in up


def test_too_few_nodes_are_counted_before_anything_waits(cluster, tmp_path):
    with joining(cluster, tmp_path / "run", "--actor-num-nodes", "4") as run:
        failed = run.wait_for(RunFailed)
        assert failed.what.startswith("the run needs 4 nodes and the cluster has ")
        assert run.end() == 7


def test_a_cluster_that_runs_here_is_not_joined_by_accident(cluster, tmp_path):
    address = {"RAY_ADDRESS": cluster.address, **cluster.environment}
    with started(tmp_path / "run", environment=address) as run:
        run.wait(lambda: [p for p in run.of(StartupProgress) if p.done])
        own = {command_of(pid) for pid in descendants({driver_pid(run)})}
        assert any(command.endswith("/gcs_server") for command in own)


def command_of(pid: int) -> str:
    """The program of a process; '' when it is gone."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return content.split(b"\0")[0].decode(errors="replace")
