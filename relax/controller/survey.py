"""What a node says of itself before a run starts on it, and whether that fits.

Nodes that compute together must run the same code. They need not share a disk: the
driver leaves a file of its own in each folder that the run writes to, and a node says
whether it sees it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relax.controller.provenance import versions
from relax.errors import ClusterError

COMPARED: Final = ("relax-rl", "torch", "megatron-core", "ray", "transformers", "numpy")
"""Packages that every node needs, in one version."""
COMPARED_IF_THERE: Final = (
    "transformer-engine",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "sglang",
    "nvidia-driver",
)
"""What a node without GPUs may lack."""
_PACKAGE = Path(__file__).resolve().parents[1]
_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the driver asks every node.

    Attributes:
        outputs: Folder that the run writes to → name of the driver's file in it.
        inputs: Folders that every node reads, e.g. a checkpoint.
    """

    outputs: Mapping[Path, str]
    inputs: Sequence[Path]


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What a node says of itself.

    Attributes:
        host: Its name.
        versions: By package; with ``nvidia-driver`` where there is one.
        code: Hash over the source of relax.
        sees: Output folder → whether it is the driver's.
        inputs: Input folder → digest of its files' names and sizes; None: not there.
        devices: UUIDs of its GPUs.
    """

    host: str
    versions: Mapping[str, str]
    code: str
    sees: Mapping[Path, bool]
    inputs: Mapping[Path, str | None]
    devices: Sequence[str]


def report(question: Question) -> NodeReport:
    """Answers for the node that this process runs on."""
    return NodeReport(
        host=socket.gethostname(),
        versions=versions() | _nvidia_driver(),
        code=code_digest(_PACKAGE),
        sees={
            folder: (folder / name).exists()
            for folder, name in question.outputs.items()
        },
        inputs={folder: _listing(folder) for folder in question.inputs},
        devices=gpu_uuids(),
    )


@contextmanager
def asking(outputs: Iterable[Path], inputs: Iterable[Path]) -> Iterator[Question]:
    """A question, whose files lie in the output folders as long as it is asked.

    Args:
        outputs: Folders that the run writes to; made if they are missing.
        inputs: Folders that every node reads.
    """
    name = f".seen-{secrets.token_hex(8)}"
    files = {folder.absolute(): name for folder in outputs}
    try:
        for folder in files:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        yield Question(outputs=files, inputs=[folder.absolute() for folder in inputs])
    finally:
        for folder in files:
            (folder / name).unlink(missing_ok=True)


def check_node(node: str, theirs: NodeReport, ours: NodeReport) -> None:
    """Compares a node with the driver's.

    Args:
        node: How to call it in an error.
        theirs: What it says.
        ours: What the driver's node says.

    Raises:
        ClusterError: Versions, code or inputs differ; names the node and both sides.
    """
    found = [*_versions_apart(theirs.versions, ours.versions)]
    if not found and theirs.code != ours.code:
        found.append(
            f"its relax is not the driver's: source {theirs.code[:12]}, not "
            f"{ours.code[:12]}"
        )
    if found:
        raise ClusterError(
            f"{node} runs other software than the driver: {'; '.join(found)}",
            where=node,
            hint="install the same on every node, or leave this one out",
        )
    for folder, digest in ours.inputs.items():
        if theirs.inputs[folder] != digest:
            has = "does not see" if theirs.inputs[folder] is None else "has another"
            raise ClusterError(
                f"{node} {has} {folder}",
                where=node,
                hint="copy the folder to the same path on every node",
            )


def _versions_apart(
    theirs: Mapping[str, str], ours: Mapping[str, str]
) -> Iterator[str]:
    for name in (*COMPARED, *COMPARED_IF_THERE):
        their, our = theirs.get(name), ours.get(name)
        if name in COMPARED_IF_THERE and None in (their, our):
            continue
        if their != our:
            yield f"{name} {their or 'missing'}, not {our or 'missing'}"


def code_digest(package: Path) -> str:
    """SHA-256 over names and content of all Python files under a folder."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _listing(folder: Path) -> str | None:
    """Names and sizes; contents are too large to be read for this."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
        told = "".join(f"{path.name} {path.stat().st_size}\n" for path in files)
    except OSError:
        return None
    return hashlib.sha256(told.encode()).hexdigest()


def _nvidia_driver() -> dict[str, str]:
    try:
        text = (_DRIVER / "version").read_text()
    except OSError:
        return {}
    found = re.search(r"Module\D*?\s(\d+\.[\d.]+)\s", text)
    return {"nvidia-driver": found[1]} if found else {}


def gpu_uuids() -> tuple[str, ...]:
    """UUIDs of this node's GPUs, as the driver lists them."""
    found = []
    for path in sorted(_DRIVER.glob("gpus/*/information")):
        uuid = re.search(r"GPU UUID:\s*(\S+)", path.read_text())
        if uuid:
            found.append(uuid[1])
    return tuple(found)
