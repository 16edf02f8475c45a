"""SGLang servers for tests, on the CPU; where there is no SGLang they say so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relax.backends.sglang.command import ServerSettings
from relax.backends.sglang.engine import ModelFacts
from relax.backends.sglang.environment import sglang_python
from relax.backends.sglang.server import ServerProcess
from relax.errors import EngineError

try:
    PYTHON: Path | None = sglang_python(None)
    _WHY = ""
except EngineError as error:
    PYTHON, _WHY = None, str(error)

SGLANG = pytest.mark.skipif(PYTHON is None, reason=f"no SGLang: {_WHY}")


def settings(checkpoint: Path, **arguments) -> ServerSettings:
    return ServerSettings(
        python=PYTHON,
        model=checkpoint,
        context_length=ModelFacts.read(checkpoint).context,
        arguments={"dtype": "float32", **arguments},
        has_gpu=False,
        threads=1,
        seed=0,
    )


@contextmanager
def open_server(checkpoint: Path, *, log: Path, **arguments) -> Iterator[ServerProcess]:
    server = ServerProcess(settings(checkpoint, **arguments), log=log)
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())
