"""All ranks' train dumps → one step.

Which ranks worked on the same samples is told from the tokens, not from rank numbers:

- tensor parallel: ranks hold equal copies. They are compared, and one is kept.
- context parallel: ranks hold zig-zag pieces of the per-token columns (`zigzag`).
- pipeline parallel: only the last stage holds log-probs and what follows from them.
- data parallel: other samples.

What is missing stays missing: a column whose piece is not here is not filled up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from relax.dump.readers.notes import Notes
from relax.dump.readers.train import (
    FLOAT_COLUMNS,
    MicroBatchPlace,
    TrainFile,
    TrainSample,
)
from relax.dump.readers.values import Floats
from relax.dump.readers.zigzag import Span, piece_length, put_together, spans

LARGEST_CP: Final = 64


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes that say which place in its context-parallel group a rank has.

    Megatron-core numbers ranks with tensor parallel fastest, then context parallel.

    Attributes:
        cp: Size of context-parallel groups; 1: columns are whole.
        tp: Size of tensor-parallel groups.
        given: ``{rank: cp_rank}`` where the files say so themselves.
    """

    cp: int = 1
    tp: int = 1
    given: tuple[tuple[int, int], ...] = ()

    def cp_rank(self, rank: int) -> int:
        """The rank's place in its context-parallel group."""
        return dict(self.given).get(rank, (rank // self.tp) % self.cp)


@dataclass(kw_only=True)
class _Column:
    """One column as some ranks hold it, all of them bit by bit the same."""

    ranks: list[int]
    arrays: list[Floats | None]
    digest: bytes


@dataclass(kw_only=True)
class _Partition:
    """Ranks that worked on the same samples in the same order."""

    samples: list[TrainSample]
    ranks: list[int]
    places: tuple[MicroBatchPlace, ...]
    columns: dict[str, list[_Column]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JoinedStep:
    """What all ranks together trained on.

    Attributes:
        samples: With whole columns in ``floats``; partition by partition.
        places: Micro-batches; ``position`` counts in ``samples``.
        layout: How pieces were put together.
        ranks: Whose files were read.
        coverage: In words for people and numbers for programs.
    """

    samples: list[TrainSample]
    places: list[MicroBatchPlace]
    layout: Layout
    ranks: tuple[int, ...]
    coverage: dict[str, object]


class StepJoin:
    """Takes the files of one step, one after the other.

    Args:
        notes: Takes what does not fit.
        layout: Where a manifest says it; None: told from the lengths of pieces.
    """

    def __init__(self, *, notes: Notes, layout: Layout | None = None) -> None:
        self._notes = notes
        self._layout = layout
        self._partitions: dict[bytes, _Partition] = {}
        self._given: dict[int, tuple[int, int]] = {}
        self._ranks: set[int] = set()

    def add(self, file: TrainFile) -> None:
        """Adds a rank's file; columns that equal another rank's are not kept twice."""
        if file.rank in self._ranks:
            self._notes.add(
                f"rank {file.rank} comes twice; the second file is left out"
            )
            return
        self._ranks.add(file.rank)
        if file.cp is not None:
            self._given[file.rank] = file.cp
        key = hashlib.blake2b(
            b"".join(sample.digest for sample in file.samples), digest_size=16
        ).digest()
        partition = self._partitions.get(key)
        if partition is None:
            partition = _Partition(samples=file.samples, ranks=[], places=file.places)
            self._partitions[key] = partition
        partition.ranks.append(file.rank)
        for name in FLOAT_COLUMNS:
            arrays = [sample.floats.pop(name, None) for sample in file.samples]
            if any(array is not None for array in arrays):
                self._keep(partition.columns.setdefault(name, []), file.rank, arrays)

    @staticmethod
    def _keep(columns: list[_Column], rank: int, arrays: list[Floats | None]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(b"-" if array is None else array.size.to_bytes(8, "little"))
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        for column in columns:
            if column.digest == digest.digest():
                column.ranks.append(rank)
                return
        columns.append(_Column(ranks=[rank], arrays=arrays, digest=digest.digest()))

    def join(self) -> JoinedStep:
        """Puts together what was added."""
        partitions = sorted(self._partitions.values(), key=lambda p: min(p.ranks))
        layout = self._layout_of(partitions)
        samples: list[TrainSample] = []
        places: list[MicroBatchPlace] = []
        without: list[int] = []
        for partition in partitions:
            without.extend(self._join_columns(partition, layout))
            places.extend(_moved(partition.places, by=len(samples)))
            samples.extend(partition.samples)
        coverage: dict[str, object] = {
            "ranks": sorted(self._ranks),
            "partitions": len(partitions),
            "trained": len(samples),
        }
        if layout.cp > 1:
            coverage["context_parallel"] = layout.cp
        if without:
            coverage["ranks_without_log_probs"] = sorted(without)
        return JoinedStep(
            samples=samples,
            places=places,
            layout=layout,
            ranks=tuple(sorted(self._ranks)),
            coverage=coverage,
        )

    def _layout_of(self, partitions: Sequence[_Partition]) -> Layout:
        if self._layout is not None:
            return self._layout
        if self._given:
            sizes = {size for _, size in self._given.values()}
            if len(sizes) > 1:
                self._notes.add(f"files name different cp_size: {sorted(sizes)}")
            given = tuple((rank, cp) for rank, (cp, _) in self._given.items())
            return Layout(cp=max(sizes), given=given)
        odd = [p for p in partitions if any(map(_is_odd, _columns(p)))]
        if not odd:
            return Layout()
        world = max(self._ranks) + 1
        fitting = [
            layout
            for cp in range(2, min(world, LARGEST_CP) + 1)
            for layout in (Layout(cp=cp, tp=tp) for tp in range(1, world // cp + 1))
            if all(_fits(partition, layout) for partition in odd)
        ]
        # With several, the one in which copies that should be equal are equal.
        fitting.sort(key=lambda layout: sum(_unequal(p, layout) for p in odd))
        return fitting[0] if fitting else Layout()

    def _join_columns(self, partition: _Partition, layout: Layout) -> list[int]:
        """Fills the samples' columns; gives the ranks that have no log-probs."""
        for name, columns in partition.columns.items():
            if layout.cp > 1 and all(
                _fits_pieces(partition, column, layout) for column in columns
            ):
                self._from_pieces(partition, name, layout)
            else:
                self._from_wholes(partition, name)
        having = {r for c in partition.columns.get("log_probs", ()) for r in c.ranks}
        return [rank for rank in partition.ranks if rank not in having]

    def _from_wholes(self, partition: _Partition, name: str) -> None:
        columns = partition.columns[name]
        whole = [c for c in columns if all(_is_whole(c, partition.samples))]
        kept = whole[0] if whole else columns[0]
        for other in columns:
            if other is not kept:
                self._compare(name, kept, other)
        for sample, array in zip(partition.samples, kept.arrays, strict=True):
            if array is None:
                continue
            if array.size == sample.response:
                sample.floats[name] = array
            else:
                self._notes.add(
                    f"{name} is not as long as the response, and is no piece of a "
                    f"context-parallel group that fits; left out",
                    sample=sample.position,
                )

    def _from_pieces(self, partition: _Partition, name: str, layout: Layout) -> None:
        by_cp: dict[int, _Column] = {}
        for column in partition.columns[name]:
            for rank in column.ranks:
                cp_rank = layout.cp_rank(rank)
                kept = by_cp.setdefault(cp_rank, column)
                if kept is not column:
                    self._compare(name, kept, column)
        missing = [r for r in range(layout.cp) if r not in by_cp]
        for position, sample in enumerate(partition.samples):
            held = {r: c.arrays[position] for r, c in by_cp.items()}
            pieces = {r: array for r, array in held.items() if array is not None}
            whole = put_together(
                pieces, _places_of(sample, layout), response=sample.response
            )
            if whole is not None:
                sample.floats[name] = whole
            elif pieces:
                who = ", ".join(map(str, missing)) or "some"
                self._notes.add(
                    f"{name} is incomplete: the piece of context-parallel rank {who} "
                    f"of {layout.cp} is not here; left out",
                    sample=sample.position,
                )

    def _compare(self, name: str, one: _Column, other: _Column) -> None:
        """Notes how copies differ that tensor-parallel ranks should hold equal."""
        unequal, most = 0, 0.0
        for a, b in zip(one.arrays, other.arrays, strict=True):
            if a is None or b is None or a.size != b.size:
                unequal += 0 if a is b else 1
                continue
            differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
            unequal += int(np.count_nonzero(differs))
            apart = np.abs(a[differs].astype(np.float64) - b[differs])
            most = max(most, float(apart[np.isfinite(apart)].max(initial=0.0)))
        self._notes.add(
            f"{name} of rank {other.ranks[0]} is not that of rank {one.ranks[0]}, "
            f"which had the same samples: {unequal} tokens differ, by up to "
            f"{most:.3g}; rank {one.ranks[0]}'s is shown"
        )


def _columns(partition: _Partition) -> Iterator[tuple[_Partition, _Column]]:
    for columns in partition.columns.values():
        for column in columns:
            yield partition, column


def _is_odd(item: tuple[_Partition, _Column]) -> bool:
    partition, column = item
    return not all(_is_whole(column, partition.samples))


def _is_whole(column: _Column, samples: Sequence[TrainSample]) -> Iterator[bool]:
    for array, sample in zip(column.arrays, samples, strict=True):
        yield array is None or array.size == sample.response


def _places_of(sample: TrainSample, layout: Layout) -> list[tuple[Span, Span]]:
    return [
        spans(
            total=sample.total,
            response=sample.response,
            cp_rank=cp_rank,
            cp_size=layout.cp,
            padded=sample.padded,
        )
        for cp_rank in range(layout.cp)
    ]


def _fits(partition: _Partition, layout: Layout) -> bool:
    """Whether some column is in pieces, and every such column in those of a layout."""
    groups = partition.columns.values()
    odd = [g for g in groups if any(_is_odd((partition, column)) for column in g)]
    return all(_fits_pieces(partition, column, layout) for g in odd for column in g)


def _fits_pieces(partition: _Partition, column: _Column, layout: Layout) -> bool:
    ranks = {layout.cp_rank(rank) for rank in column.ranks}
    for array, sample in zip(column.arrays, partition.samples, strict=True):
        if array is None:
            continue
        for cp_rank in ranks:
            both = spans(
                total=sample.total,
                response=sample.response,
                cp_rank=cp_rank,
                cp_size=layout.cp,
                padded=sample.padded,
            )
            if piece_length(both) != array.size:
                return False
    return True


def _unequal(partition: _Partition, layout: Layout) -> int:
    """Columns that a context-parallel place holds beyond the one it should."""
    count = 0
    for columns in partition.columns.values():
        for cp_rank in range(layout.cp):
            here = [c for c in columns if cp_rank in map(layout.cp_rank, c.ranks)]
            count += max(0, len(here) - 1)
    return count


def _moved(places: Sequence[MicroBatchPlace], *, by: int) -> Iterator[MicroBatchPlace]:
    for place in places:
        yield MicroBatchPlace(
            position=place.position + by,
            step_id=place.step_id,
            rank=place.rank,
            micro_batch=place.micro_batch,
            place=place.place,
        )
