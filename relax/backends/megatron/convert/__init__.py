"""Weights between Hugging Face names and megatron-core."""
