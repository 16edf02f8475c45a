"""The parallel layout of the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relax.arguments.flag import POSITIVE, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    """Sizes of the parallel axes; data parallelism is what is left of the world."""

    tensor_model_parallel_size: int = field(
        default=1, metadata=flag("Tensor parallel ranks.", bounds=POSITIVE)
    )
    pipeline_model_parallel_size: int = field(
        default=1, metadata=flag("Pipeline stages.", bounds=POSITIVE)
    )
    context_parallel_size: int = field(
        default=1, metadata=flag("Context parallel ranks.", bounds=POSITIVE)
    )
    expert_model_parallel_size: int = field(
        default=1, metadata=flag("Expert parallel ranks.", bounds=POSITIVE)
    )
    sequence_parallel: bool = field(
        default=False,
        metadata=flag("Split activations along the sequence under TP; off without TP."),
    )
    use_distributed_optimizer: bool = field(
        default=False, metadata=flag("Split the optimizer's state over DP ranks.")
    )

    @property
    def sizes(self) -> Mapping[str, int]:
        """The axes under the short names of records and screens."""
        return {
            "tp": self.tensor_model_parallel_size,
            "pp": self.pipeline_model_parallel_size,
            "cp": self.context_parallel_size,
            "ep": self.expert_model_parallel_size,
        }

    @property
    def model_parallel_size(self) -> int:
        """Ranks that hold one copy of the model: TP times PP times CP."""
        return (
            self.tensor_model_parallel_size
            * self.pipeline_model_parallel_size
            * self.context_parallel_size
        )
