"""RL post-training that can be debugged like a program."""
