"""Private folders for sockets and links, short enough for a unix socket."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from scripted_hands import ScriptedRun, scripted_run


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """``$XDG_RUNTIME_DIR`` and ``$XDG_STATE_HOME`` of this test alone."""
    folder = Path(tempfile.mkdtemp(prefix="rlx"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[ScriptedRun]:
    async with scripted_run(tmp_path / "run") as run:
        yield run
