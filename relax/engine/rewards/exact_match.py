"""Reward 1.0 when the response is the label, else 0.0."""

from __future__ import annotations

from relax.engine.rollout.sample import Sample
from relax.errors import RecordError


def exact_match(sample: Sample) -> float:
    """Compare the response, without its stop token and outer white space.

    Raises:
        RecordError: The sample has no label.
    """
    return float(sample.answer == required_label(sample).strip())


def required_label(sample: Sample) -> str:
    """The label.

    Raises:
        RecordError: There is none.
    """
    if sample.label is None:
        raise RecordError(
            f"sample {sample.index} has no label", hint="name its key with --label-key"
        )
    return sample.label
