"""The reference weights: a model of their own, or copies on the host swapped in."""

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
