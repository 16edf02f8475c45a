"""Shape checks: a silent broadcast in a loss is a wrong loss."""

from __future__ import annotations

from torch import Tensor

from relax.errors import InternalError


def require_same_shape(**tensors: Tensor) -> None:
    """Refuses tensors that torch would broadcast against each other.

    Args:
        **tensors: The tensors of one formula, by the name the message should use.

    Raises:
        InternalError: Two of them have different shapes.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InternalError(f"per-token tensors must have one shape, got {told}")
