"""Exact-match reward: the last number of the response is the right one."""

from __future__ import annotations

import re

NUMBER = re.compile(r"-?\d+")


def score(response: str, label: str) -> float:
    """Score one response.

    Args:
        response: Decoded text of the response.
        label: The right answer in decimal digits.

    Returns:
        1.0 when the last number in ``response`` equals ``label``, else 0.0. A response
        without a number scores 0.0.
    """
    numbers = NUMBER.findall(response)
    return float(bool(numbers) and int(numbers[-1]) == int(label))
