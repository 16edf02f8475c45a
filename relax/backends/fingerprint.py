"""A fingerprint of a model's weights, the same on the trainer and on the engine.

    fingerprint = sha256( for each tensor, by name:  name, 0, sha256(tensor) )
    sha256(tensor) = sha256( dtype, shape, bytes in row-major order )

The order in which tensors arrive does not matter, so the trainer may compute it bucket
by bucket. A tied output layer is the same tensor under two names: ``lm_head.weight`` is
left out when it has the content of the input embedding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch

from relax.errors import InternalError

EMBEDDING = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"


class Fingerprint:
    """Collects tensors one by one.

    Keeps 32 bytes a tensor, not the tensors.
    """

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Take one tensor, on any device, under its Hugging Face name.

        Raises:
            InternalError: The name came before.
        """
        if name in self._digests:
            raise InternalError(f"tensor {name!r} was fingerprinted twice")
        self._digests[name] = tensor_digest(tensor)

    def digests(self) -> dict[str, str]:
        """``{name: digest}`` of what was added so far, without a tied output layer."""
        digests = dict(self._digests)
        head = digests.get(LM_HEAD)
        if head is not None and head == digests.get(EMBEDDING):
            del digests[LM_HEAD]
        return digests

    def hexdigest(self) -> str:
        """The fingerprint of what was added so far, 64 hexadecimal digits."""
        return combined(self.digests())


def combined(digests: Mapping[str, str]) -> str:
    """The fingerprint of tensors whose digests are known.

    Args:
        digests: ``{Hugging Face name: digest}``, a tied output layer left out.

    Returns:
        64 hexadecimal digits.
    """
    whole = hashlib.sha256()
    for name in sorted(digests):
        whole.update(name.encode() + b"\0" + bytes.fromhex(digests[name]))
    return whole.hexdigest()


def fingerprint_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Fingerprint named tensors, in any order.

    Args:
        tensors: Pairs of Hugging Face name and tensor; may be a generator.

    Returns:
        64 hexadecimal digits.

    Raises:
        InternalError: A name came twice.
    """
    fingerprint = Fingerprint()
    for name, tensor in tensors:
        fingerprint.add(name, tensor)
    return fingerprint.hexdigest()


def tensor_digest(tensor: torch.Tensor) -> str:
    """The sha256 of a tensor's type, shape and content, 64 hexadecimal digits."""
    data = tensor.detach().to("cpu").contiguous()
    head = f"{str(data.dtype).removeprefix('torch.')}{tuple(data.shape)}\0"
    digest = hashlib.sha256(head.encode())
    # numpy has no bfloat16: hash the bytes, whatever the type.
    digest.update(data.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
