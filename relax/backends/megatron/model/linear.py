"""The row-parallel matrix of the local layer spec."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relax.backends.megatron.mcore import ModuleSpec, RowParallelLinear


class RowLinear(RowParallelLinear):
    """megatron's row-parallel matrix, which tells its product whose group it works in.

    megatron's own hands it no group, and megatron's own product warns of that: once a
    layer and pass.
    """

    def _forward_impl(
        self, *, input: Tensor, weight: Tensor, **settings: Any
    ) -> Tensor:
        told = settings | {"tp_group": self.tp_group}
        return super()._forward_impl(input=input, weight=weight, **told)


def use_row_linear(spec: ModuleSpec) -> None:
    """Puts `RowLinear` wherever a layer spec, at any depth, names megatron's own."""
    for name, part in vars(spec.submodules).items():
        if part is RowParallelLinear:
            setattr(spec.submodules, name, RowLinear)
        elif isinstance(part, ModuleSpec) and part.submodules is not None:
            use_row_linear(part)
