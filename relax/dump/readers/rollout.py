"""One sample of a rollout dump → one row of ``samples.arrow``.

Fields are those of ``Sample.to_dict`` (facts of upstream Relax, slime and miles). What
the record has no column for is kept in ``metadata``, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import numpy as np

from relax.dump.readers import values
from relax.dump.readers.notes import Notes
from relax.dump.readers.values import Malformed

Row = dict[str, Any]
Value = TypeVar("Value")

STATUSES: Final = frozenset({"pending", "completed", "truncated", "aborted", "failed"})
UNKNOWN_STATUS: Final = "unknown"

_IN_COLUMNS: Final = frozenset(
    {
        "decoded_tokens",
        "group_index",
        "index",
        "label",
        "loss_mask",
        "metadata",
        "prompt",
        "response",
        "response_length",
        "reward",
        "rollout_log_probs",
        "rollout_tokens",
        "status",
        "tokens",
        "weight_versions",
    }
)
"""Fields that have a column, or that say a second time what a column says."""

_NOTHING: Final = (None, "", 0, 0.0, False)


class RolloutReader:
    """Turns samples into rows.

    Args:
        rollout_id: The rollout, for every row.
        reward_key: Key of the number where rewards are dicts; None when unknown.
        notes: Takes what is malformed.
    """

    def __init__(
        self, *, rollout_id: int, reward_key: str | None, notes: Notes
    ) -> None:
        self._rollout_id = rollout_id
        self._reward_key = reward_key
        self._notes = notes

    def row(self, sample: object, position: int) -> tuple[Row, Mapping[str, Any]]:
        """A sample's row, and its fields.

        Args:
            sample: As unpickled.
            position: In the file.
        """
        try:
            fields = values.fields_of(sample)
        except Malformed as error:
            self._notes.add(f"an entry {error}", sample=position)
            fields = {}
        one = _Fields(fields, position, self._notes)
        tokens = one.take("tokens", values.ids)
        length = one.response_length(tokens)
        total = length if tokens is None else tokens.size
        mask = one.of_response("loss_mask", values.mask, length)
        log_probs = one.of_response("rollout_log_probs", values.floats, length)
        index = values.integer(fields.get("index"))
        if index is None and fields:
            self._notes.add(
                "has no index; its place in the file is taken", sample=position
            )
        row = {
            "rollout_id": self._rollout_id,
            "sample_index": position if index is None else index,
            "group_index": values.integer(fields.get("group_index")),
            "status": one.status(),
            "stop_reason": _stop_reason(fields.get("metadata")),
            "failure": None,
            "reward": self._reward(fields.get("reward"), position),
            "label": values.text(fields.get("label")),
            "prompt": values.text(fields.get("prompt")),
            "response": values.text(fields.get("response")),
            "prompt_length": total - length,
            "response_length": length,
            "total_length": total,
            "num_masked": None if mask is None else int(np.count_nonzero(mask == 0)),
            "weight_versions": _versions(fields.get("weight_versions")),
            "tokens_kept": True,
            "tokens": tokens,
            "loss_mask": mask,
            "rollout_log_probs": log_probs,
            "rollout_log_prob_mean": masked_mean(log_probs, mask),
            "metadata": _metadata(fields),
        }
        return row, fields

    def _reward(self, value: object, position: int) -> float | None:
        if type(value) is not dict:
            return values.number(value)
        numbers = {k: values.number(v) for k, v in value.items() if type(k) is str}
        known = {key: found for key, found in numbers.items() if found is not None}
        if self._reward_key is not None:
            return known.get(self._reward_key)
        if len(known) == 1:
            return next(iter(known.values()))
        names = ", ".join(sorted(known))[:80]
        self._notes.add(
            f"its reward is a dict, and which of {names or 'no number'} counts is not "
            "in the file; give --reward-key",
            sample=position,
        )
        return None


class _Fields:
    """A sample's fields, with a note for each that is malformed."""

    def __init__(self, fields: Mapping[str, Any], position: int, notes: Notes) -> None:
        self._fields = fields
        self._position = position
        self._notes = notes

    def note(self, text: str) -> None:
        self._notes.add(text, sample=self._position)

    def take(self, name: str, read: Callable[[object], Value]) -> Value | None:
        try:
            return read(self._fields.get(name))
        except Malformed as error:
            self.note(f"{name} {error}; left out")
            return None

    def response_length(self, tokens: values.Ints | None) -> int:
        """R, which must fit the tokens; else what the other columns say."""
        declared = values.integer(self._fields.get("response_length"))
        most = (1 << 31) - 1 if tokens is None else tokens.size
        if declared is not None and 0 <= declared <= most:
            return declared
        if not self._fields:
            return 0
        for name in ("loss_mask", "rollout_log_probs"):
            column = self._fields.get(name)
            if type(column) is list and 0 < len(column) <= most:
                self.note(
                    f"response_length {declared} does not fit its {most} tokens; that "
                    f"of {name} is taken"
                )
                return len(column)
        self.note(f"response_length {declared} does not fit its tokens; 0 is taken")
        return 0

    def of_response(self, name: str, read: Callable[[object], Any], length: int) -> Any:
        """A column that has one entry a response token, or None."""
        column = self.take(name, read)
        if column is None or column.size == length:
            return column
        if column.size:
            # An empty list is how an engine that was asked for none says so.
            self.note(f"{name} is not as long as the response; left out")
        return None

    def status(self) -> str:
        found = values.word(self._fields.get("status"))
        if found in STATUSES:
            return found
        self.note(f"its status is {found!r}")
        return UNKNOWN_STATUS


def masked_mean(column: values.Floats | None, mask: values.Mask | None) -> float | None:
    """Mean over the tokens that count; None when there are none.

    Args:
        column: [R].
        mask: [R]; None: every token counts.
    """
    if column is None or not column.size:
        return None
    chosen = column if mask is None or mask.all() else column[mask.astype(bool)]
    return float(chosen.sum(dtype=np.float64) / chosen.size) if chosen.size else None


def _stop_reason(metadata: object) -> str | None:
    if type(metadata) is not dict:
        return None
    for name in ("stop_reason", "rollout_stop_reason"):
        if type(metadata.get(name)) is str:
            return values.text(metadata[name])
    return None


def _versions(found: object) -> list[str] | None:
    if type(found) not in (list, tuple):
        return None
    return [values.text(version) or "" for version in list(found)[:1000]]  # type: ignore[call-overload]


def _metadata(fields: Mapping[str, Any]) -> str:
    metadata = fields.get("metadata")
    found = dict(metadata) if type(metadata) is dict else {}
    rest = {
        name: value
        for name, value in fields.items()
        if name not in _IN_COLUMNS and not _is_nothing(value)
    }
    if type(fields.get("reward")) is dict:
        rest["reward"] = fields["reward"]
    if metadata is not None and type(metadata) is not dict:
        rest["metadata"] = metadata
    if rest:
        found["sample"] = rest
    return values.to_json(found)


def _is_nothing(value: object) -> bool:
    if type(value) in (list, dict, tuple):
        return not value
    return type(value) in (bool, int, float, str, type(None)) and value in _NOTHING
