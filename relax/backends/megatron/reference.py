"""Other weights than the actor's: the reference, and earlier versions kept on the host.

A model of their own, or copies on the host that are swapped in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from relax.backends.megatron.convert.weights import ModelPart
from relax.backends.megatron.step.forward import ScoringModel


@dataclass(frozen=True, kw_only=True)
class ResidentReference:
    """A second model, ready to run (``--ref-mode resident``).

    Attributes:
        scoring: The model.
    """

    scoring: ScoringModel

    @contextmanager
    def in_place(self, actor: ScoringModel, part: ModelPart) -> Iterator[ScoringModel]:
        """The reference model; the actor's is not touched."""
        yield self.scoring


@dataclass(frozen=True, kw_only=True)
class SwappedReference:
    """Host copies that take the place of the actor's weights (``--ref-mode swap``).

    Attributes:
        host: megatron's name → CPU tensor.
    """

    host: dict[str, Tensor]

    @contextmanager
    def in_place(self, actor: ScoringModel, part: ModelPart) -> Iterator[ScoringModel]:
        """The actor's model with these weights; its own are back on any exit."""
        kept = host_copies(part)
        try:
            _overwrite(part, self.host)
            yield actor
        finally:
            _overwrite(part, kept)


Reference = ResidentReference | SwappedReference


class KeptWeights:
    """The last few versions of the actor's weights, as copies on the host.

    Args:
        most: Versions to keep; 0 keeps none.
        most_bytes: Bytes that they may take together on this rank.

    Attributes:
        by_version: What is kept, the oldest first.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.by_version: dict[int, SwappedReference] = {}

    def keep(self, version: int, part: ModelPart) -> None:
        """Keeps the weights as they are now, and lets go of the oldest.

        Weights that do not fit at all are not kept.
        """
        size = sum(p.numel() * p.element_size() for p in part.parameters.values())
        fit = min(self._most, self._most_bytes // size)
        self.by_version.pop(version, None)
        for old in list(self.by_version)[: max(0, len(self.by_version) + 1 - fit)]:
            del self.by_version[old]
        if fit:
            self.by_version[version] = SwappedReference(host=host_copies(part))


def host_copies(part: ModelPart) -> dict[str, Tensor]:
    """Copies of all parameters of this rank on the host."""
    return {
        name: parameter.detach().to("cpu", copy=True)
        for name, parameter in part.parameters.items()
    }


@torch.no_grad()
def _overwrite(part: ModelPart, values: dict[str, Tensor]) -> None:
    for name, parameter in part.parameters.items():
        parameter.copy_(values[name])
