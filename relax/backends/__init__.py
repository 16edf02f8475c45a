"""Trainers and rollout engines, and the seams to them."""
