"""One train dump → its samples, whatever the layout.

Relax           {rollout_id, rank, samples: [dict]}          one file a rank
slime v2        the same with format_version, dp_shards      one file a rollout
slime v1, ours  {rollout_id, rank, rollout_data: {column}}   one file a rank
miles           as v1, with cp_rank, cp_size, qkv_format
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from relax.dump.decode.content import Content
from relax.dump.decode.tensors import NumpyArray, Tensor
from relax.dump.readers import values
from relax.dump.readers.notes import Notes
from relax.dump.readers.values import Malformed

FLOAT_COLUMNS: Final = (
    "log_probs",
    "ref_log_probs",
    "entropy",
    "advantages",
    "returns",
    "rollout_log_probs",
)
"""Per-token columns of the record that a rank may hold whole or in pieces."""

_READ: Final = frozenset(
    {
        *FLOAT_COLUMNS,
        "decoded_tokens",
        "group_index",
        "loss_masks",
        "max_seq_lens",
        "raw_reward",
        "response_lengths",
        "rewards",
        "rollout_position",
        "sample_index",
        "sample_indices",
        "tokens",
        "total_lengths",
        "truncated",
    }
)


@dataclass(kw_only=True, slots=True)
class TrainSample:
    """A sample as one rank trained on it.

    Attributes:
        position: In the file.
        digest: Of the tokens; names the sample where no index does.
        index: Number over the whole run; None when the file has only its place.
        padded: Tokens that a padded batch gave it; None for packed sequences.
        reward: As scored; `normalized_reward` as trained on.
        rollout_position: Place in the rollout dump, where the file says so.
        decoded: Text of each token, where the file has it.
        floats: By column: whole ([R]) or this rank's piece of it.
    """

    position: int
    digest: bytes
    index: int | None
    group: int | None
    total: int
    response: int
    padded: int | None
    tokens: values.Ints | None
    mask: values.Mask | None
    reward: float | None
    normalized_reward: float | None
    truncated: bool | None
    dp_rank: int | None
    rollout_position: int | None
    decoded: object
    floats: dict[str, values.Floats] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MicroBatchPlace:
    """Where a sample was in training: position in the file, and its micro-batch."""

    position: int
    step_id: int
    rank: int
    micro_batch: int
    place: int


@dataclass(frozen=True, kw_only=True)
class TrainFile:
    """One train dump.

    Attributes:
        rank: The rank that wrote it.
        whole: Whether it holds the samples of all ranks, put together by its writer.
        samples: In the file's order.
        cp: ``(cp_rank, cp_size)`` where the file says so.
        places: Micro-batches, where the file has them.
    """

    rank: int
    whole: bool
    samples: list[TrainSample]
    cp: tuple[int, int] | None = None
    places: tuple[MicroBatchPlace, ...] = ()


def read_train_file(content: Content, *, rank: int, notes: Notes) -> TrainFile:
    """Reads a train dump of any of the known layouts.

    Args:
        content: The file's.
        rank: The rank that wrote it.
        notes: Takes what is malformed.
    """
    reader = _Samples(notes, padded=content.keys.get("qkv_format") == "bshd")
    if content.samples is not None:
        rows: Iterator[Mapping[str, Any]] = _rows(content.samples, notes)
    else:
        rows = _columns(content.keys["rollout_data"], notes)
    samples = [reader.sample(row, position) for position, row in enumerate(rows)]
    keys = {**content.keys, **content.tail}
    if type(keys.get("raw_reward")) is list:
        _spread_rewards(samples, keys["raw_reward"], notes)
    reader.note_unread(notes)
    cp_rank, cp_size = (values.integer(keys.get(k)) for k in ("cp_rank", "cp_size"))
    cp = None
    if cp_rank is not None and cp_size is not None and 0 <= cp_rank < cp_size:
        cp = (cp_rank, cp_size)
    shards = keys.get("dp_shards")
    return TrainFile(
        rank=rank,
        whole="format_version" in keys,
        samples=samples,
        cp=cp,
        places=tuple(_places(shards, samples)) if type(shards) is list else (),
    )


def _rows(samples: Iterator[object], notes: Notes) -> Iterator[Mapping[str, Any]]:
    for position, sample in enumerate(samples):
        try:
            yield values.fields_of(sample)
        except Malformed as error:
            notes.add(f"an entry {error}", sample=position)
            yield {}


def _columns(data: Mapping[str, Any], notes: Notes) -> Iterator[Mapping[str, Any]]:
    """Rows of a dict of columns: every list as long as the list of tokens."""
    # A column may come as one tensor with an entry a sample.
    lists = {
        name: _listed(column) for name, column in data.items() if type(name) is str
    }
    for name in ("tokens", "response_lengths", *FLOAT_COLUMNS):
        if lists.get(name):
            count = len(lists[name])
            break
    else:
        notes.add("rollout_data has no column with one entry a sample")
        return
    odd = [
        n
        for n, column in lists.items()
        if n in _READ and column and len(column) != count
    ]
    for name in odd:
        notes.add(
            f"{name} has {len(lists[name])} entries for {count} samples; left out"
        )
    whole = {n: column for n, column in lists.items() if len(column) == count}
    for position in range(count):
        yield {name: column[position] for name, column in whole.items()}


def _listed(column: object) -> list[Any]:
    if type(column) in (list, tuple):
        return list(column)  # type: ignore[call-overload,no-any-return]
    if type(column) in (Tensor, NumpyArray):
        array = column.numpy()  # type: ignore[attr-defined]
        return array.tolist() if array.ndim == 1 else []
    return []


class _Samples:
    """Turns a row of any layout into a sample."""

    def __init__(self, notes: Notes, *, padded: bool) -> None:
        self._notes = notes
        self._padded = padded
        self._unread: set[str] = set()

    def sample(self, row: Mapping[str, Any], position: int) -> TrainSample:
        def take(name: str, read: Callable[[object], Any]) -> Any:
            try:
                return read(row.get(name))
            except Malformed as error:
                self._notes.add(f"{name} {error}; left out", sample=position)
                return None

        tokens, mask = take("tokens", values.ids), take("loss_masks", values.mask)
        floats = {name: take(name, values.floats) for name in FLOAT_COLUMNS}
        response = _length(row, "response_lengths", mask)
        total = _length(row, "total_lengths", tokens)
        if tokens is not None and tokens.size != total:
            self._notes.add("total_lengths is not that of its tokens", sample=position)
            total = tokens.size
        if mask is not None and mask.size != response:
            self._notes.add(
                "loss_masks is not as long as the response", sample=position
            )
            mask = None
        self._unread |= row.keys() - _READ
        index = row.get("sample_indices", row.get("sample_index"))
        if "sample_indices" not in row and "rollout_position" not in row:
            # Relax's sample_index is the place in this rank's file, which says nothing.
            index = None
        raw = row.get("raw_reward")
        return TrainSample(
            position=position,
            digest=sample_digest(tokens, total, response),
            index=values.integer(index),
            group=values.integer(row.get("group_index")),
            total=total,
            response=min(response, total),
            padded=values.integer(row.get("max_seq_lens")) if self._padded else None,
            tokens=tokens,
            mask=mask,
            reward=values.number(raw),
            normalized_reward=values.number(row.get("rewards")),
            truncated=_flag(row.get("truncated")),
            dp_rank=values.integer(row.get("data_parallel_rank")),
            rollout_position=values.integer(row.get("rollout_position")),
            decoded=row.get("decoded_tokens"),
            floats={name: c for name, c in floats.items() if c is not None},
        )

    def note_unread(self, notes: Notes) -> None:
        """Names the columns that the record has no place for."""
        for name in sorted(self._unread)[:40]:
            notes.add(f"the column {name[:60]!r} has no place in the record")


def _length(row: Mapping[str, Any], name: str, column: Any) -> int:
    declared = values.integer(row.get(name))
    if declared is not None and 0 <= declared < 1 << 31:
        return declared
    return 0 if column is None else int(column.size)


def sample_digest(tokens: values.Ints | None, total: int, response: int) -> bytes:
    """Names a sample by its tokens and lengths, where it has no number of its own."""
    content = b"" if tokens is None else tokens.tobytes()
    head = f"{total} {response} ".encode()  # a sample without tokens has these at least
    return hashlib.blake2b(head + content, digest_size=16).digest()


def _flag(value: object) -> bool | None:
    found = values.number(value)
    return None if found is None else bool(found)


def _spread_rewards(
    samples: list[TrainSample], rewards: list[Any], notes: Notes
) -> None:
    """Gives the samples the rewards that slime v2 keeps once, in rollout order."""
    for sample in samples:
        place = sample.rollout_position
        if place is None and len(rewards) == len(samples):
            place = sample.position
        if place is not None and 0 <= place < len(rewards):
            sample.reward = values.number(rewards[place])
        else:
            notes.add("raw_reward does not say whose it is", sample=sample.position)


def _places(shards: list[Any], samples: list[TrainSample]) -> Iterator[MicroBatchPlace]:
    """Micro-batches of slime v2: per shard, lists of places among its samples."""
    by_dp: dict[int | None, list[int]] = {}
    for sample in samples:
        by_dp.setdefault(sample.dp_rank, []).append(sample.position)
    for shard in shards:
        if type(shard) is not dict:
            continue
        mine = by_dp.get(values.integer(shard.get("data_parallel_rank")), [])
        batches = shard.get("micro_batch_indices")
        steps = shard.get("num_microbatches")
        counts = [values.integer(n) or 0 for n in steps] if type(steps) is list else []
        rank = values.integer(shard.get("rank")) or 0
        for number, batch in enumerate(batches if type(batches) is list else ()):
            for place, local in enumerate(batch if type(batch) is list else ()):
                if type(local) is int and 0 <= local < len(mine):
                    step = _step_of(number, counts)
                    yield MicroBatchPlace(
                        position=mine[local],
                        step_id=step,
                        rank=rank,
                        micro_batch=number - sum(counts[:step]),
                        place=place,
                    )


def _step_of(number: int, counts: list[int]) -> int:
    for step in range(len(counts)):
        if number < sum(counts[: step + 1]):
            return step
    return max(0, len(counts) - 1)
