"""The formulas of policy optimisation as pure torch functions.

One formula a function, its source in the docstring. Every function returns tensors, or
a sum and its count, never a mean: the caller adds sums and counts over micro-batches
and ranks and divides once. No settings object enters this package.
"""
