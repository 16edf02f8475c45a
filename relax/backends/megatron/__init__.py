"""Training on megatron-core: on GPUs with nccl, without one on CPU with gloo.

The layers, each importing only those above it:

    parallel   the only door to megatron's parallel state; makes a `ParallelLayout`
    cpu        megatron's cuda names answered by the CPU, only where there is no GPU
    model/     HF config → shape → GPTModel
    convert/   HF weights ↔ megatron weights, one table a family
    step/      samples → micro-batches → log-probs → loss → optimizer step
    sync/      weights as HF-named buckets, and their fingerprint
    checkpoint  the trainer's whole state in a folder
    trainer    `MegatronTrainer`, which puts them together
"""

import warnings

with warnings.catch_warnings():
    # megatron-core tells on import, once a module, that Transformer Engine and Apex are
    # missing. Whether they are needed is decided by --transformer-impl, not here.
    warnings.filterwarnings("ignore", message=r"(?s).*(Transformer Engine|Apex)")
    import megatron.core.distributed
    import megatron.core.models.gpt
    import megatron.core.optimizer  # noqa: F401
