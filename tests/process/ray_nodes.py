"""Ray clusters of several nodes on one machine, for the tests of this folder.

A node beside the head gets a mount namespace of its own, in which the run folder is
empty: as on a machine that shares no disk. Whatever happens to the test, the reaper
ends all nodes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relax.control.run_folder import process_start
from relax.controller.reaper import Reaper, descendants
from tests.process.runs import wait_until

RAY = Path(sys.executable).parent / "ray"
STORE_BYTES = 100 * 1024 * 1024
START_SECONDS = 180.0


def can_unshare() -> bool:
    """Whether a process of ours may have mounts of its own."""
    command = ["unshare", "-m", "true"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@dataclass
class Node:
    """A Ray node, as the processes that a test started for it."""

    process: subprocess.Popen[bytes]
    output: Path

    def kill(self) -> None:
        """The machine is gone: its processes, all at once."""
        pids = descendants({self.process.pid})
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        for pid in pids | descendants({self.process.pid}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)


@dataclass
class Cluster:
    """A cluster that a test started.

    Attributes:
        address: Of the head.
        folder: Ray's own, and the nodes' temporary files.
        environment: With which whoever belongs to the cluster is started.
    """

    address: str
    folder: Path
    environment: Mapping[str, str]
    reaper: Reaper
    nodes: list[Node] = field(default_factory=list)

    @contextlib.contextmanager
    def another(
        self, *, empty: Path, instead: Mapping[Path, Path] | None = None
    ) -> Iterator[Node]:
        """Another node.

        Args:
            empty: A folder that is empty there.
            instead: Files that are another one there.
        """
        empty.mkdir(parents=True, exist_ok=True)
        mounts = [["mount", "-t", "tmpfs", "tmpfs", str(empty)]]
        for place, other in (instead or {}).items():
            mounts.append(["mount", "--bind", str(other), str(place)])
        script = " && ".join(map(shlex.join, mounts))
        command = ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh"]
        node = self.start([*command, *ray_start(), f"--address={self.address}"])
        try:
            wait_for_text(node, "Ray runtime started")
            yield node
        finally:
            node.kill()

    def start(self, command: Sequence[str]) -> Node:
        """Starts a node's processes."""
        number = len(self.nodes)
        output = self.folder / f"node-{number}.out"
        temporary = self.folder / f"tmp-{number}"
        temporary.mkdir()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment, "TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.reaper.watch_process(process.pid)
        node = Node(process, output)
        self.nodes.append(node)
        return node


@contextlib.contextmanager
def ray_cluster() -> Iterator[Cluster]:
    """The head of a cluster: one CPU, token authentication."""
    # Short: a unix socket's path holds 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rx-"))
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # A node that was killed is off the list before the next test looks at it.
        "RAY_health_check_period_ms": "500",
    }
    reaper = Reaper()
    reaper.start()
    reaper.watch_path(folder)
    cluster = Cluster("", folder, environment, reaper)
    try:
        head = cluster.start(
            [
                *(*ray_start(), "--head", "--port=0", f"--temp-dir={folder}"),
                "--include-dashboard=false",
            ]
        )
        wait_for_text(head, "Ray runtime started")
        cluster.address = (folder / "ray_current_cluster").read_text().strip()
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()
        reaper.dismiss()
        shutil.rmtree(folder, ignore_errors=True)


def ray_start() -> list[str]:
    """What all nodes are started with."""
    return [
        *(str(RAY), "start", "--block", "--num-cpus=1", "--disable-usage-stats"),
        f"--object-store-memory={STORE_BYTES}",
        # Nodes of one machine must not take each other's ports.
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]


def wait_for_text(node: Node, text: str) -> None:
    """Waits until a node has printed something."""

    def there() -> bool:
        if process_start(node.process.pid) == 0 or node.process.poll() is not None:
            raise AssertionError(f"the node ended: {node.output.read_text()}")
        return text in node.output.read_text(errors="replace")

    if not wait_until(there, seconds=START_SECONDS):
        raise AssertionError(f"the node is not up: {node.output.read_text()}")
