"""Step records as frozen views; Arrow is imported with this module, so it comes late.

Scalars of all samples become rows at once; token columns stay in their immutable Arrow
tables until a person looks at a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from relax.errors import RecordError, RecordMissing
from relax.records.open import StepRecord, Vocabulary, list_rollouts, read_vocabulary
from relax.records.schema import RecordMetadata, StageFile
from relax_tui.sources.base import RolloutView, SampleTokens
from relax_tui.sources.sample_rows import (
    LOGPROB_COLUMNS,
    SAMPLE_COLUMNS,
    joined,
    micro_batches,
    sample_rows,
    score_rows,
)

KEPT_VIEWS = 3
NOTHING_YET = "no sample is recorded yet"


class ArrowTokens:
    """Tokens of a rollout's samples, out of its immutable tables.

    Args:
        samples: Table of the samples stage (or the live stream).
        logprobs: Table of the logprobs stage; None while it is not there.
        vocabulary: Token texts; None when the run has no vocabulary file.
        absent: Reasons for columns that the run does not have.
    """

    def __init__(
        self,
        samples: pa.Table,
        *,
        logprobs: pa.Table | None,
        vocabulary: Vocabulary | None,
        absent: Mapping[str, str],
    ) -> None:
        self._samples = samples
        self._logprobs = logprobs
        self._vocabulary = vocabulary
        self._absent = absent

    def sample(self, row: int) -> SampleTokens | None:
        """The tokens of a row; None when the record does not carry them."""
        total = _cell(self._samples, "tokens", row)
        length = _cell(self._samples, "response_length", row)
        if total is None or length is None:
            return None
        # tokens[T-R:] is the response; every other column is aligned to it already.
        ids = tuple(total[len(total) - length :])
        columns: dict[str, tuple[float, ...]] = {}
        absent: dict[str, str] = {}
        for table, names in (
            (self._samples, SAMPLE_COLUMNS),
            (self._logprobs, LOGPROB_COLUMNS),
        ):
            for name in names:
                values = _cell(table, name, row) if table is not None else None
                if values is not None and len(values) == len(ids):
                    columns[name] = tuple(values)
                else:
                    absent[name] = self._why_absent(name, table, values)
        mask = _cell(self._samples, "loss_mask", row)
        vocabulary = self._vocabulary
        return SampleTokens(
            ids=ids,
            texts=tuple(vocabulary.text(ids)) if vocabulary else tuple(map(str, ids)),
            raw=tuple(map(vocabulary.bytes, ids)) if vocabulary else (),
            special=tuple(i in vocabulary.special for i in ids) if vocabulary else (),
            mask=None if mask is None else tuple(mask),
            columns=columns,
            absent=absent,
        )

    def _why_absent(
        self, name: str, table: pa.Table | None, values: Sequence[float] | None
    ) -> str:
        if name in self._absent:
            return self._absent[name]
        if table is None:
            return "not yet: its stage has not run"
        if values is not None:
            return f"{len(values)} values, not one a token"
        return "the run does not record it for this sample"


def _cell(table: pa.Table, name: str, row: int) -> Any:
    if name not in table.column_names or row >= table.num_rows:
        return None
    return table.column(name)[row].as_py()


class RecordReader:
    """Reads the rollouts of one run folder, each again only when it grew.

    Args:
        run_dir: The run folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._vocabularies: dict[str, Vocabulary | None] = {}
        self._views: dict[tuple[int, int], tuple[Any, RolloutView]] = {}
        self._versions = 0
        self._listed: tuple[tuple[int, int], ...] = ()
        self._listed_state: tuple[Any, ...] = ()

    def rollouts(self) -> tuple[tuple[int, int], ...]:
        """All recorded rollouts; listed again only when the folders changed."""
        steps = self._run_dir / "steps"
        state = tuple(
            (folder.name, folder.stat().st_mtime_ns)
            for folder in (sorted(steps.iterdir()) if steps.is_dir() else [])
        )
        if state != self._listed_state:
            self._listed = tuple(list_rollouts(self._run_dir))
            self._listed_state = state
        return self._listed

    def view(self, rollout: tuple[int, int], *, vocab: str) -> RolloutView:
        """The samples of a rollout, as far as they are recorded.

        Args:
            rollout: Attempt and rollout id.
            vocab: Vocabulary file that the run names; '' if none.

        Returns:
            The same object as before when nothing was added since.
        """
        record = StepRecord(self._run_dir, *rollout)
        state = (vocab, _sizes(record.folder))
        before = self._views.pop(rollout, None)
        if before is None or before[0] != state:
            self._versions += 1
            view = record_view(
                record, rollout, vocabulary=self._vocabulary, vocab=vocab
            )
            before = (state, replace(view, version=self._versions))
        # The one looked at last is the last to be forgotten.
        self._views[rollout] = before
        while len(self._views) > KEPT_VIEWS:
            del self._views[next(iter(self._views))]
        return before[1]

    def _vocabulary(self, name: str) -> Vocabulary | None:
        if not name:
            return None
        if name not in self._vocabularies:
            try:
                self._vocabularies[name] = read_vocabulary(self._run_dir / name)
            except RecordMissing:
                # Without it tokens show as their ids, which says so plainly enough.
                return None
        return self._vocabularies[name]


def record_view(
    record: StepRecord,
    rollout: tuple[int, int],
    *,
    vocabulary: Callable[[str], Vocabulary | None],
    vocab: str = "",
) -> RolloutView:
    """A step record as a view, wherever it lies, as far as it can be read.

    Args:
        record: The record.
        rollout: Attempt and rollout id.
        vocabulary: Reads a vocabulary file by the name that a record gives it.
        vocab: Name of the one to take when the record names none.
    """
    whole = _Whole(record)
    samples = whole.stage(StageFile.SAMPLES, rows=sample_rows)
    logprobs = whole.stage(StageFile.LOGPROBS, rows=score_rows)
    train = whole.stage(StageFile.TRAIN, rows=micro_batches)
    complete = samples is not None
    if samples is None:
        live = record.live_table()
        samples = None if live is None else _Stage(live, None, sample_rows(live))
    empty = _without_samples(rollout, whole.damaged)
    if samples is None:
        return empty
    metadata, second = samples.metadata, logprobs.metadata if logprobs else None
    absent, passes = _merged(metadata, second)
    name = metadata.vocab if metadata and metadata.vocab else vocab
    words = whole.read(lambda: vocabulary(name), "token texts")
    return replace(
        empty,
        note="",
        damaged=tuple(whole.damaged),
        stages=tuple(str(stage) for stage in StageFile if record.has(stage)),
        complete=complete,
        weights_version=metadata.weights_version if metadata else None,
        passes=passes,
        rows=joined(samples.rows, logprobs.rows if logprobs else None),
        micro_batches=tuple(train.rows) if train else (),
        tokens=ArrowTokens(
            samples.table,
            logprobs=logprobs.table if logprobs else None,
            vocabulary=words,
            absent=absent | whole.absent,
        ),
    )


def _without_samples(rollout: tuple[int, int], damaged: Sequence[str]) -> RolloutView:
    """The view of a record as long as there is no sample to show."""
    return RolloutView(
        attempt=rollout[0],
        rollout_id=rollout[1],
        version=0,
        note="its samples are damaged" if damaged else NOTHING_YET,
        damaged=tuple(damaged),
    )


_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class _Stage(Generic[_Read]):
    """A stage file that was read: its table, what it says of itself, its rows."""

    table: pa.Table
    metadata: RecordMetadata | None
    rows: Sequence[_Read]


class _Whole:
    """Reads the files of a record that are whole, and notes those that are not."""

    def __init__(self, record: StepRecord) -> None:
        self._record = record
        self.damaged: list[str] = []
        self.absent: dict[str, str] = {}

    def stage(
        self, stage: StageFile, *, rows: Callable[[pa.Table], Sequence[_Read]]
    ) -> _Stage[_Read] | None:
        """A stage's file; None when it is not there yet, or damaged."""
        found = self.read(lambda: self._stage(stage, rows), _HOLDS[stage])
        if found is None and self._record.has(stage):
            columns = LOGPROB_COLUMNS if stage is StageFile.LOGPROBS else ()
            self.absent |= dict.fromkeys(columns, f"{stage}.arrow is damaged")
        return found

    def _stage(
        self, stage: StageFile, rows: Callable[[pa.Table], Sequence[_Read]]
    ) -> _Stage[_Read] | None:
        table = self._record.table(stage)
        if table is None:
            return None
        try:
            return _Stage(table, self._record.metadata(stage), rows(table))
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise RecordError(
                f"its rows are not those of a {stage} file ({error!r})",
                where=str(self._record.path(stage)),
            ) from error

    def read(self, work: Callable[[], _Read], holds: str) -> _Read | None:
        """What ``work`` gives; None after noting that ``holds`` cannot be read."""
        try:
            return work()
        except RecordError as error:
            self.damaged.append(
                f"{error.where}: {error.what}. Missing here: {holds}. Other rollouts"
                " are not touched ([ and ] go to them); take the file from a copy of"
                " the run folder, or look at its disk"
            )
            return None


_HOLDS = {
    StageFile.SAMPLES: "prompts, responses, rewards and rollout_log_probs",
    StageFile.LOGPROBS: "log_probs, ref_log_probs, entropy and advantages",
    StageFile.TRAIN: "where each sample was in training",
}


def _merged(
    *parts: RecordMetadata | None,
) -> tuple[dict[str, str], dict[str, str]]:
    absent: dict[str, str] = {}
    passes: dict[str, str] = {}
    for part in parts:
        if part is not None:
            absent.update(part.absent)
            passes.update(part.passes)
    return absent, passes


def _sizes(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    if folder.is_dir():
        for path in folder.iterdir():
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found.append((path.name, status.st_size, status.st_mtime_ns))
    return sorted(found)
