"""Reward 1.0 when the last number of the response is the label, else 0.0."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from relax.engine.rewards.exact_match import required_label
from relax.engine.rollout.sample import Sample
from relax.errors import RecordError

# A minus right after a digit is a subtraction, not a sign. Commas group thousands.
NUMBER = re.compile(r"(?:(?<!\d)-)?\d+(?:,\d{3}(?!\d))*(?:\.\d+)?")


def last_number(sample: Sample) -> float:
    """Compare as numbers, so ``85``, ``85.0`` and ``1,085`` are read as meant.

    A response without a number scores 0.0.

    Raises:
        RecordError: The label is missing or is not a number.
    """
    label = required_label(sample)
    try:
        wanted = Decimal(label.strip().replace(",", ""))
    except InvalidOperation as error:
        raise RecordError(
            f"the label {label!r:.60} of sample {sample.index} is not a number",
            hint="use --rm-type exact_match for text",
        ) from error
    found = NUMBER.findall(sample.answer)
    return float(bool(found) and Decimal(found[-1].replace(",", "")) == wanted)
