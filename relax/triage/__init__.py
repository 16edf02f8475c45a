"""Rules that read a rollout's numbers and say what is wrong, where, and what to do."""
