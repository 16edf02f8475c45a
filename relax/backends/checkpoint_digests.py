"""Digests of a checkpoint on disk, as they compare with what an engine holds."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from relax.backends.fingerprint import Fingerprint
from relax.errors import EngineError


def checkpoint_digests(checkpoint: Path, *, dtype: str) -> dict[str, str]:
    """sha256 of each tensor of a Hugging Face folder, one tensor in memory at a time.

    Args:
        checkpoint: Folder with ``*.safetensors``.
        dtype: What floating-point tensors are converted to first, e.g. ``bfloat16``:
            the type in which trainer and engine hold them.

    Returns:
        By name, a tied output layer left out.

    Raises:
        EngineError: The files cannot be read.
    """
    wanted: torch.dtype = getattr(torch, dtype)
    digests = Fingerprint()
    try:
        for path in sorted(checkpoint.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    tensor = file.get_tensor(name)
                    floating = tensor.is_floating_point()
                    digests.add(name, tensor.to(wanted) if floating else tensor)
    except (OSError, SafetensorError) as error:
        raise EngineError(
            f"its tensors cannot be read: {error}", where=str(checkpoint)
        ) from error
    return digests.digests()
