"""A rollout engine inside the process: transformers on the CPU."""
