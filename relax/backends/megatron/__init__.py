"""Training on megatron-core: on GPUs with nccl, without one on CPU with gloo.

The layers, each importing only those above it:

    mcore       megatron-core's names, imported quietly
    parallel    the only door to megatron's parallel state; makes a `ParallelLayout`
    cpu         megatron's cuda names answered by the CPU, only where there is no GPU
    model/      HF config → shape → GPTModel
    convert/    HF weights ↔ megatron weights, one table a family
    step/       samples → micro-batches → log-probs → loss → optimizer step
    sync/       weights as HF-named buckets
    checkpoint  the trainer's whole state in a folder
    settings    what a training process is told
    reference   the reference weights
    opened      settings → everything that a running trainer holds
    trainer     `MegatronTrainer`: the operations on it
    worker      the same as a Ray actor

Importing this package imports none of them, so that the driver can name the actor class
without torch.
"""
