"""Step records as frozen views; Arrow is imported with this module, so it comes late.

Scalars of all samples become rows at once; token columns stay in their immutable Arrow
tables until a person looks at a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from relax.errors import RecordError
from relax.measure.text import is_repetitive, repeated_ngram_share, replacement_share
from relax.records.open import StepRecord, Vocabulary, list_rollouts, read_vocabulary
from relax.records.schema import RecordMetadata, StageFile
from relax_tui.sources.base import (
    MicroBatchRow,
    RolloutView,
    SampleRow,
    SampleTokens,
)

KEPT_VIEWS = 3
NOTHING_YET = "no sample is recorded yet"
LOOP_SHARE = 0.5
LOOP_TOKENS = 16
GARBLED_SHARE = 0.02
FLAG_CHARACTERS = 20_000
SAMPLE_COLUMNS = ("rollout_log_probs",)
LOGPROB_COLUMNS = ("log_probs", "ref_log_probs", "entropy", "advantages", "returns")
_HEAVY = frozenset({"tokens", "loss_mask", *SAMPLE_COLUMNS, *LOGPROB_COLUMNS})


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
            try:
                view = self._read(record, rollout, vocab)
            except RecordError as error:
                view = _empty(rollout, str(error))
            before = (state, replace(view, version=self._versions))
        # The one looked at last is the last to be forgotten.
        self._views[rollout] = before
        while len(self._views) > KEPT_VIEWS:
            del self._views[next(iter(self._views))]
        return before[1]

    def _read(
        self, record: StepRecord, rollout: tuple[int, int], vocab: str
    ) -> RolloutView:
        logprobs = record.table(StageFile.LOGPROBS)
        samples = record.table(StageFile.SAMPLES)
        complete = samples is not None
        if samples is None:
            samples = record.live_table()
        if samples is None:
            return _empty(rollout, NOTHING_YET)
        metadata = record.metadata(StageFile.SAMPLES) if complete else None
        second = record.metadata(StageFile.LOGPROBS) if logprobs is not None else None
        absent, passes = _merged(metadata, second)
        train = record.table(StageFile.TRAIN)
        name = metadata.vocab if metadata and metadata.vocab else vocab
        return RolloutView(
            attempt=rollout[0],
            rollout_id=rollout[1],
            version=0,
            stages=tuple(str(stage) for stage in StageFile if record.has(stage)),
            complete=complete,
            weights_version=metadata.weights_version if metadata else None,
            passes=passes,
            rows=_rows(samples, logprobs),
            micro_batches=() if train is None else _micro_batches(train),
            tokens=ArrowTokens(
                samples,
                logprobs=logprobs,
                vocabulary=self._vocabulary(name),
                absent=absent,
            ),
        )

    def _vocabulary(self, name: str) -> Vocabulary | None:
        if not name:
            return None
        if name not in self._vocabularies:
            try:
                self._vocabularies[name] = read_vocabulary(self._run_dir / name)
            except RecordError:
                # Without it tokens show as their ids, which says so plainly enough.
                return None
        return self._vocabularies[name]


def _empty(rollout: tuple[int, int], note: str) -> RolloutView:
    return RolloutView(attempt=rollout[0], rollout_id=rollout[1], version=0, note=note)


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


def _rows(samples: pa.Table, logprobs: pa.Table | None) -> tuple[SampleRow, ...]:
    light = samples.select([n for n in samples.column_names if n not in _HEAVY])
    left = light.to_pylist()
    right: list[dict[str, Any]] = [{} for _ in left]
    if logprobs is not None and logprobs.num_rows == samples.num_rows:
        names = [n for n in logprobs.column_names if n not in _HEAVY]
        right = logprobs.select(names).to_pylist()
    tokens = samples.column("tokens") if "tokens" in samples.column_names else None
    rows = []
    for number, (sample, scores) in enumerate(zip(left, right, strict=True)):
        ids = tokens[number].as_py() if tokens is not None else None
        rows.append(_row(number, sample, scores, ids))
    return tuple(rows)


def _row(
    number: int,
    sample: Mapping[str, Any],
    scores: Mapping[str, Any],
    tokens: Sequence[int] | None,
) -> SampleRow:
    row = SampleRow(
        row=number,
        index=sample["sample_index"],
        group=sample.get("group_index"),
        status=sample["status"],
        reward=sample.get("reward"),
        length=sample["response_length"],
        total_length=sample["total_length"],
        prompt=sample.get("prompt") or "",
        response=sample.get("response") or "",
        label=sample.get("label") or "",
        masked=sample.get("num_masked"),
        failure=sample.get("failure") or "",
        stop_reason=sample.get("stop_reason") or "",
        weight_versions=tuple(sample.get("weight_versions") or ()),
        log_prob_mean=scores.get("log_prob_mean"),
        entropy_mean=scores.get("entropy_mean"),
        normalized_reward=scores.get("normalized_reward"),
        ref_unequal=scores.get("ref_unequal"),
        ref_max_abs=scores.get("ref_max_abs"),
        ref_max_position=scores.get("ref_max_position"),
        rollout_mean_abs=scores.get("rollout_mean_abs"),
        rollout_max_abs=scores.get("rollout_max_abs"),
        rollout_max_position=scores.get("rollout_max_position"),
        nonfinite=scores.get("num_nonfinite"),
        tokens_kept=sample["tokens_kept"],
    )
    ids = () if tokens is None else tokens[len(tokens) - row.length :]
    return replace(row, flags=flags(row, ids))


def flags(row: SampleRow, ids: Sequence[int]) -> tuple[str, ...]:
    """Short words for what is odd about a sample, the worst first.

    Args:
        row: Its scalars.
        ids: Its response tokens, when they are carried.

    Returns:
        Some of FAIL, NONF, GARB, LOOP, EMPTY, TRUNC.
    """
    text = row.response[:FLAG_CHARACTERS]
    share = repeated_ngram_share(ids) if len(ids) >= LOOP_TOKENS else None
    loops = is_repetitive(text) or (share is not None and share > LOOP_SHARE)
    found = {
        "FAIL": bool(row.failure) or row.status == "failed",
        "NONF": bool(row.nonfinite),
        "GARB": (replacement_share(text) or 0) > GARBLED_SHARE,
        "LOOP": loops,
        "EMPTY": row.length == 0,
        "TRUNC": row.status == "truncated",
        "ABORT": row.status == "aborted",
    }
    return tuple(word for word, is_so in found.items() if is_so)


def _micro_batches(train: pa.Table) -> tuple[MicroBatchRow, ...]:
    return tuple(
        MicroBatchRow(
            index=row["sample_index"],
            step_id=row["step_id"],
            rank=row["rank"],
            micro_batch=row["micro_batch"],
            place=row["place"],
            padded_length=row["padded_length"],
        )
        for row in train.to_pylist()
    )
