"""The door into the server: what relax runs in SGLang's own scheduler processes.

SGLang's ``--custom-weight-loader`` names functions that ``update_weights_from_tensor``
calls as ``function(model, named_tensors)``, with the very module that answers requests.
`call` is such a function. The tensor it is sent is empty; its *name* is a JSON object:

    do      ``load`` (`relax.backends.sglang.loader`) or ``inspect`` (… `.witness`)
    answer  file that takes what came of it; the rank is appended when there are several
    …       what the function named by ``do`` takes

This file and what it imports is imported by SGLang's interpreter: torch, the standard
library, and `relax.backends.fingerprint` are all they may use.
"""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from relax.backends.sglang.loader import load
from relax.backends.sglang.witness import inspect

DOES: Final = {"load": load, "inspect": inspect}


def call(model: torch.nn.Module, named_tensors: list[tuple[str, Tensor]]) -> None:
    """Does what the name of the first tensor says, and writes the answer.

    Never raises, for that would end the scheduler: a failure is the answer's ``error``.
    """
    request: dict[str, Any] = json.loads(named_tensors[0][0])
    rank, world = _rank()
    do, place = request.pop("do"), request.pop("answer")
    path = Path(f"{place}.{rank}" if world > 1 else place)
    try:
        answer: dict[str, Any] = DOES[do](model, **request)
    except Exception:  # noqa: BLE001 - raising would end the server
        answer = {"error": traceback.format_exc()}
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(answer))
    temporary.replace(path)


def _rank() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
