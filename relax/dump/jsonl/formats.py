"""One JSON object of each engine → the fields of a sample; absent stays absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from relax.dump.readers import values
from relax.dump.readers.notes import Notes
from relax.dump.readers.rollout import STATUSES, UNKNOWN_STATUS
from relax.dump.readers.values import Floats, Malformed

UNKNOWN_LENGTH: Final = -1
"""Response length of a sample of which only the text is known."""

Line = Mapping[str, Any]


@dataclass(kw_only=True, slots=True)
class JsonSample:
    """A sample as a line tells it; None is what it does not tell.

    Attributes:
        index: Number over the run, or place in the file.
        group: What its group is known by; samples with equal keys are one group.
        total: Tokens of prompt and response; `UNKNOWN_LENGTH` when unknown.
        response: Tokens of the response; the same.
        floats: Per-token columns aligned to the response.
        rest: Fields that have no column.
    """

    index: int | None = None
    group: str | int | None = None
    status: str = UNKNOWN_STATUS
    reward: float | None = None
    label: str | None = None
    prompt: str | None = None
    text: str | None = None
    total: int = UNKNOWN_LENGTH
    response: int = UNKNOWN_LENGTH
    tokens: values.Ints | None = None
    mask: values.Mask | None = None
    floats: dict[str, Floats] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """One engine's format.

    Attributes:
        name: As ``source_format``.
        keys: Keys that every object has.
        read: An object → its samples.
        rollout_key: Key of the step's number; '' when only the file's name has it.
        note: What is to be known of all its records; ''.
    """

    name: str
    keys: frozenset[str]
    read: Callable[[Line, Notes, int], Iterator[JsonSample]]
    rollout_key: str = ""
    note: str = ""


def recognise(line: object) -> JsonFormat | None:
    """The format of an object; None when it is of none."""
    if not isinstance(line, dict):
        return None
    return next((f for f in FORMATS if f.keys <= line.keys()), None)


def _relax(line: Line, notes: Notes, place: int) -> Iterator[JsonSample]:
    length = values.integer(line.get("response_length"))
    total = values.integer(line.get("total_length"))
    tokens = _column(line, "response_token_ids", values.ids, notes, place)
    log_probs = _column(line, "response_rollout_log_probs", _floats, notes, place)
    if tokens is not None:
        # The prompt's ids are not in the file: the response is all that is carried.
        length = total = tokens.size
    status = values.word(line.get("status"))
    sample = JsonSample(
        index=values.integer(line.get("sample_index")),
        group=values.integer(line.get("group_index")),
        status=status if status in STATUSES else UNKNOWN_STATUS,
        reward=values.number(line.get("reward")),
        label=values.text(line.get("label")),
        prompt=values.text(line.get("prompt")),
        text=values.text(line.get("response")),
        response=UNKNOWN_LENGTH if length is None else length,
        total=UNKNOWN_LENGTH if total is None else total,
        tokens=tokens,
        rest=_rest(line, _RELAX_READ),
    )
    if log_probs is not None and log_probs.size == length:
        sample.floats["rollout_log_probs"] = log_probs
    elif log_probs is not None:
        notes.add("its log-probs are not as long as its response", sample=place)
    yield sample


def _verl(line: Line, notes: Notes, place: int) -> Iterator[JsonSample]:
    uid = line.get("uid", line.get("request_id"))
    yield JsonSample(
        # Samples of one group have one prompt, and a uid where the engine writes it.
        group=str(uid) if "uid" in line else values.text(line.get("input")),
        reward=values.number(line.get("score")),
        label=values.text(line.get("gts")),
        prompt=values.text(line.get("input")),
        text=values.text(line.get("output")),
        rest=_rest(line, _VERL_READ),
    )


def _prime(line: Line, notes: Notes, place: int) -> Iterator[JsonSample]:
    tokens = _column(line, "token_ids", values.ids, notes, place)
    mask = _column(line, "loss_mask", values.mask, notes, place)
    if tokens is None or mask is None or mask.size != tokens.size:
        notes.add("token_ids and loss_mask do not fit together", sample=place)
        return
    columns = _token_columns(line, _PRIME_COLUMNS, tokens.size, notes, place)
    positions = _column(line, "position_ids", values.ids, notes, place)
    # Several sequences may be packed into one line; each begins at position 0.
    starts = [0]
    if positions is not None and positions.size == tokens.size:
        starts = np.flatnonzero(positions == 0).tolist() or [0]
    for start, end in zip(starts, [*starts[1:], tokens.size], strict=True):
        part = slice(start, end)
        if not mask[part].any():
            continue
        cut = {name: column[part] for name, column in columns.items()}
        yield _sequence(tokens[part], mask[part], cut, _rest(line, _PRIME_READ))


def _nemo(line: Line, notes: Notes, place: int) -> Iterator[JsonSample]:
    tokens = _column(line, "token_ids", values.ids, notes, place)
    mask = _column(line, "token_loss_mask", values.mask, notes, place)
    if tokens is None or mask is None:
        notes.add("token_ids or token_loss_mask is missing", sample=place)
        return
    length = values.integer(line.get("input_lengths"))
    # Rows are padded to the longest of the batch.
    end = min(x for x in (length, tokens.size, mask.size) if x is not None)
    columns = _token_columns(line, _NEMO_COLUMNS, tokens.size, notes, place)
    kept = mask[:end]
    if values.number(line.get("sample_loss_mask")) == 0:
        kept = kept.astype(np.int8) * 0
    cut = {name: column[:end] for name, column in columns.items()}
    sample = _sequence(tokens[:end], mask[:end], cut, _rest(line, _NEMO_READ))
    sample.mask = kept[end - sample.response :]
    sample.reward = values.number(line.get("rewards"))
    sample.text = values.text(line.get("content"))
    yield sample


def _sequence(
    tokens: values.Ints,
    mask: values.Mask,
    columns: Mapping[str, Floats],
    rest: dict[str, Any],
) -> JsonSample:
    """A sequence whose response begins where the mask first says so."""
    counted = np.flatnonzero(mask)
    start = int(counted[0]) if counted.size else tokens.size
    return JsonSample(
        total=tokens.size,
        response=tokens.size - start,
        tokens=tokens,
        mask=mask[start:],
        floats={name: column[start:] for name, column in columns.items()},
        rest=rest,
    )


def _token_columns(
    line: Line, names: Mapping[str, str], size: int, notes: Notes, place: int
) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    for theirs, ours in names.items():
        column = _column(line, theirs, _floats, notes, place)
        if column is None:
            continue
        if column.size == size:
            found[ours] = column
        else:
            notes.add(f"{theirs} is not as long as its tokens; left out", sample=place)
    return found


def _column(
    line: Line,
    name: str,
    read: Callable[[object], Any],
    notes: Notes,
    place: int,
) -> Any:
    try:
        return read(line.get(name))
    except Malformed as error:
        notes.add(f"{name} {error}; left out", sample=place)
        return None


def _floats(value: object) -> Floats | None:
    """Numbers, where null stands for one that was not finite."""
    if isinstance(value, list) and None in value:
        value = [float("nan") if item is None else item for item in value]
    return values.floats(value)


def _rest(line: Line, read: frozenset[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in line.items()
        if name not in read and value is not None and not isinstance(value, list)
    }


_PRIME_COLUMNS: Final = {
    "trainer_logprobs": "log_probs",
    "inference_logprobs": "rollout_log_probs",
    "entropy": "entropy",
    "advantages": "advantages",
}
_NEMO_COLUMNS: Final = {
    "prev_logprobs": "log_probs",
    "generation_logprobs": "rollout_log_probs",
    "reference_policy_logprobs": "ref_log_probs",
    "advantages": "advantages",
}
_RELAX_READ: Final = frozenset(
    {
        "rollout_id", "sample_index", "group_index", "status", "reward", "label",
        "prompt", "response", "response_length", "total_length",
    }
)  # fmt: skip
_VERL_READ: Final = frozenset({"input", "output", "gts", "score", "step"})
_PRIME_READ: Final = frozenset({"schema_version", "step"})
_NEMO_READ: Final = frozenset({"content", "rewards", "input_lengths"})

FORMATS: Final = (
    JsonFormat(
        name="Relax rollout JSONL",
        keys=frozenset({"rollout_id", "prompt", "response", "reward"}),
        read=_relax,
        rollout_key="rollout_id",
        note="tokens hold the response only: the file has no ids of the prompt",
    ),
    JsonFormat(
        name="prime-rl token export",
        keys=frozenset({"token_ids", "loss_mask", "trainer_logprobs"}),
        read=_prime,
        rollout_key="step",
    ),
    JsonFormat(
        name="NeMo-RL train data",
        keys=frozenset({"token_ids", "token_loss_mask"}),
        read=_nemo,
    ),
    JsonFormat(
        name="verl rollout JSONL",
        keys=frozenset({"input", "output", "score"}),
        read=_verl,
        rollout_key="step",
        note="text only: no token ids, masks, lengths or log-probs are in the file",
    ),
)
"""All formats; the first whose keys are there is taken."""
