"""The engine's weights by Hugging Face name, replaced in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relax.backends.fingerprint import EMBEDDING, LM_HEAD, Fingerprint, combined
from relax.errors import EngineError, EngineMismatch

INITIAL_VERSION = "checkpoint"
SHOWN_NAMES = 5
_STACKED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
"""A stack of experts' matrices in transformers → the matrices of each expert."""


class EngineWeights:
    """The tensors of a model, and an update of them that may be open.

    Args:
        module: The model. Its tensors are written in place, so its next forward uses
            them; a tied output layer is one tensor under the embedding's name.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        tensors: dict[str, Tensor] = module.state_dict()
        self._tied = (
            EMBEDDING in tensors
            and LM_HEAD in tensors
            and tensors[EMBEDDING].data_ptr() == tensors[LM_HEAD].data_ptr()
        )
        if self._tied:
            del tensors[LM_HEAD]
        self._tensors = dict(_by_expert(tensors))
        self._missing: set[str] = set()
        self._incoming: str | None = None
        self._torn = False
        self.version = INITIAL_VERSION

    @property
    def updating(self) -> bool:
        """Whether an update is open."""
        return self._incoming is not None

    @property
    def torn(self) -> bool:
        """Whether an update ended without all tensors, so versions are mixed."""
        return self._torn

    def begin(self, version: str) -> None:
        """Open an update.

        Raises:
            EngineError: Another one is open.
        """
        if self._incoming is not None:
            raise EngineError(
                f"weight update {self._incoming!r} is open, so {version!r} cannot begin"
            )
        self._incoming = version
        self._missing = set(self._tensors)

    def update(self, bucket: Mapping[str, Tensor | NDArray[Any]]) -> None:
        """Take some tensors. The whole bucket is checked before any is written.

        Raises:
            EngineError: No update is open.
            EngineMismatch: Name, shape or type does not fit; names the tensor.
        """
        if self._incoming is None:
            raise EngineError("weights arrived and no weight update is open")
        for name, tensor in bucket.items():
            self._check(name, tensor)
        for name, tensor in bucket.items():
            held = self._tensors[name]
            if isinstance(tensor, np.ndarray):
                # Through numpy: torch warns of arrays that Ray hands out read-only.
                np.copyto(held.numpy(), tensor)
            else:
                held.copy_(tensor)
            self._missing.discard(name)

    def end(self) -> str:
        """Close the update.

        Returns:
            Fingerprint over what is held now.

        Raises:
            EngineError: No update is open.
            EngineMismatch: Tensors are missing; the weights count as torn from now on.
        """
        if self._incoming is None:
            raise EngineError("a weight update ended and none is open")
        version, self._incoming = self._incoming, None
        self._torn = bool(self._missing)
        if self._torn:
            names = sorted(self._missing)
            shown = ", ".join(names[:SHOWN_NAMES])
            more = len(names) - SHOWN_NAMES
            raise EngineMismatch(
                f"weight update {version!r} ended without {len(names)} of "
                f"{len(self._tensors)} tensors: {shown}"
                + (f" and {more} more" if more > 0 else ""),
                hint="send every tensor of the model; the engine refuses requests now",
            )
        self.version = version
        return self.fingerprint()

    def digests(self) -> dict[str, str]:
        """sha256 of each tensor that is held now, by name."""
        held = Fingerprint()
        for name, tensor in self._tensors.items():
            held.add(name, tensor)
        return held.digests()

    def fingerprint(self) -> str:
        """Fingerprint over what is held now."""
        return combined(self.digests())

    def _check(self, name: str, tensor: Tensor | NDArray[Any]) -> None:
        held = self._tensors.get(name)
        if held is None:
            if self._tied and name == LM_HEAD:
                raise EngineMismatch(
                    f"{LM_HEAD} was sent, and this model's output layer is tied",
                    hint=f"send {EMBEDDING} only",
                )
            raise EngineMismatch(f"the engine's model has no tensor {name!r}")
        if tuple(tensor.shape) != tuple(held.shape):
            raise EngineMismatch(
                f"tensor {name!r} was sent as {tuple(tensor.shape)}, the engine's "
                f"model has {tuple(held.shape)}"
            )
        sent_type = str(tensor.dtype).removeprefix("torch.")
        held_type = str(held.dtype).removeprefix("torch.")
        if sent_type != held_type:
            raise EngineMismatch(
                f"tensor {name!r} was sent as {sent_type}, the engine has {held_type}",
                hint=f"convert to {held_type} before sending, so fingerprints compare",
            )


def _by_expert(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors under the names that checkpoints have.

    transformers keeps a layer's experts stacked in memory; here each is a view of its
    own, so that writing it writes the stack.
    """
    for name, tensor in tensors.items():
        prefix, _, kind = name.rpartition(".")
        if not prefix.endswith(".experts") or kind not in _STACKED:
            yield name, tensor
            continue
        for expert, stacked in enumerate(tensor.unbind(0)):
            pieces = stacked.chunk(len(_STACKED[kind]))
            for part, piece in zip(_STACKED[kind], pieces, strict=True):
                yield f"{prefix}.{expert}.{part}.weight", piece
