"""Rollouts and rewards."""
