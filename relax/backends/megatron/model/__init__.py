"""From an HF config to a megatron-core model."""
