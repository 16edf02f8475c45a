"""Every name of megatron-core that this package uses, imported once and quietly.

The other modules take megatron's names from here, except the parallel state, which only
`relax.backends.megatron.parallel` touches. A newer core that moves a name changes this
file alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _uncompiled(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Stands for ``torch.compile``, called plainly or with options."""
    return function if function is not None else _uncompiled


@contextmanager
def quiet_megatron() -> Iterator[None]:
    """Leaves out what megatron-core warns about itself.

    It tells on import, once a module, that Transformer Engine and Apex are missing;
    whether they are needed is decided by ``--transformer-impl``, not there. And it
    warns, while it imports or builds, that its own code calls its own old names.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*(Transformer Engine|Apex)")
        warnings.filterwarnings(
            "ignore", category=DeprecationWarning, module=r"megatron\."
        )
        yield


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Keeps functions that megatron-core wraps in ``torch.compile`` plain on CPU.

    There the wrapper would start a C++ compiler at the first call, and only preparing
    for it takes 1.3 of 3.5 seconds of importing.
    """
    compiler = torch.compile
    if not torch.cuda.is_available():
        torch.compile = _uncompiled
    try:
        yield
    finally:
        torch.compile = compiler


with quiet_megatron(), _without_compiler():
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.common.embeddings.rotary_pos_embedding import (
        RotaryEmbedding,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
        get_gpt_layer_with_transformer_engine_spec,
    )
    from megatron.core.optimizer import (
        ChainedOptimizer,
        MegatronOptimizer,
        OptimizerConfig,
        get_megatron_optimizer,
    )
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel import (
        RowParallelLinear,
        model_parallel_cuda_manual_seed,
    )
    from megatron.core.tensor_parallel.random import (
        CudaRNGStatesTracker,
        get_cuda_rng_tracker,
    )
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.moe_layer import MoELayer
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

__all__ = [
    "ChainedOptimizer",
    "CudaRNGStatesTracker",
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "Float16Module",
    "GPTModel",
    "MegatronOptimizer",
    "MoELayer",
    "ModuleSpec",
    "OptimizerConfig",
    "OptimizerParamScheduler",
    "PackedSeqParams",
    "ProcessGroupCollection",
    "RotaryEmbedding",
    "RowParallelLinear",
    "TransformerBlockSubmodules",
    "TransformerConfig",
    "finalize_model_grads",
    "get_cuda_rng_tracker",
    "get_forward_backward_func",
    "get_gpt_layer_local_spec",
    "get_gpt_layer_with_transformer_engine_spec",
    "get_megatron_optimizer",
    "model_parallel_cuda_manual_seed",
    "moe_utils",
    "quiet_megatron",
]
