"""JSONL files of one step → a step record, as decoding a dump gives one."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax.dump.decode.messages import Decoded
from relax.dump.jsonl.formats import JsonFormat, JsonSample, recognise
from relax.dump.readers import values
from relax.dump.readers.logprobs import logprob_row
from relax.dump.readers.notes import Notes
from relax.dump.readers.record import StageSpool
from relax.dump.readers.rollout import Row, masked_mean
from relax.dump.readers.stages import record_metadata
from relax.dump.readers.train import TrainSample
from relax.errors import DumpError, DumpMissing
from relax.records.schema import TOKEN_COLUMNS, RecordMetadata, StageFile

LOOK_BYTES: Final = 4 << 20
_NUMBERS: Final = re.compile(r"\d+")


def look_at_jsonl(path: Path) -> JsonFormat | None:
    """The format of a file by its first object; None when it is of none.

    Args:
        path: The file; a first line of more than 4 MiB is not looked at.
    """
    try:
        with path.open("rb") as stream:
            first = stream.readline(LOOK_BYTES)
        return recognise(json.loads(first))
    except (OSError, ValueError, RecursionError):
        return None


def step_of_name(path: Path) -> int | None:
    """The step that a file's name, or its folder's, gives."""
    for name in (path.stem, path.parent.name):
        found = _NUMBERS.findall(name)
        if found and not name.startswith("rank"):
            return int(found[-1][:9])
    return None


def read_jsonl(paths: Sequence[Path], into: Path) -> Decoded:
    """Reads the files of one step.

    Args:
        paths: One file, or all ranks' files of one step.
        into: Folder for the record; made when missing.

    Returns:
        The record, as from `relax.dump.decode`.

    Raises:
        DumpMissing: A file does not exist.
        DumpError: A file is of no known format, or its first object is no JSON.
    """
    started = time.monotonic()
    into.mkdir(parents=True, exist_ok=True)
    reading = _Reading(into)
    for path in paths:
        reading.read(path)
    stages = reading.finish()
    return Decoded(
        folder=into,
        kind="train" if StageFile.LOGPROBS in stages else "rollout",
        source_format=reading.source,
        rollout_id=reading.rollout_id,
        num_samples=reading.num_rows,
        stages=tuple(map(str, stages)),
        coverage={"samples": reading.num_rows, "files": len(paths)},
        notes=reading.notes.lines(),
        files=tuple(paths),
        seconds=round(time.monotonic() - started, 3),
    )


class _Reading:
    """Rows on their way to the record."""

    def __init__(self, into: Path) -> None:
        self.notes = Notes()
        self.source = ""
        self.rollout_id = -1
        self.num_rows = 0
        self._groups: dict[str | int, int] = {}
        self._samples = StageSpool(into, StageFile.SAMPLES)
        self._logprobs = StageSpool(into, StageFile.LOGPROBS)
        self._trained = False

    def read(self, path: Path) -> None:
        kind: JsonFormat | None = None
        for place, line in enumerate(_lines(path, self.notes)):
            found = kind or recognise(line)
            if found is None:
                raise DumpError(
                    f"its objects are of no known format; keys: {_keys(line)}",
                    where=str(path),
                )
            if kind is None:
                kind = found
                self._begin(path, kind, line)
            for sample in kind.read(line, self.notes, place):
                self._append(sample)
        if kind is None:
            raise DumpError("it holds no JSON object", where=str(path))

    def finish(self) -> tuple[StageFile, ...]:
        metadata = record_metadata(
            rollout_id=self.rollout_id,
            source=self.source,
            coverage={"samples": self.num_rows},
            vocab="",
            manifest=None,
        )
        stages = [StageFile.SAMPLES]
        if self._trained:
            self._logprobs.finish(_absent(metadata, self._logprobs, StageFile.LOGPROBS))
            stages.append(StageFile.LOGPROBS)
        self._logprobs.discard()
        self._samples.finish(_absent(metadata, self._samples, StageFile.SAMPLES))
        return tuple(stages)

    def _begin(self, path: Path, kind: JsonFormat, line: dict[str, Any]) -> None:
        self.source = kind.name
        if kind.note:
            self.notes.add(kind.note)
        named = values.integer(line.get(kind.rollout_key)) if kind.rollout_key else None
        step = named if named is not None else step_of_name(path)
        if step is None:
            self.notes.add(f"{path.name} does not say its step; 0 is taken")
            step = 0
        if self.rollout_id not in (-1, step):
            raise DumpError(
                f"the files are of different steps: {self.rollout_id} and {step}",
                where=str(path),
            )
        self.rollout_id = step

    def _append(self, sample: JsonSample) -> None:
        index = self.num_rows if sample.index is None else sample.index
        self._samples.append(self._row(sample, index))
        trained = "log_probs" in sample.floats or "advantages" in sample.floats
        self._trained = self._trained or trained
        self._logprobs.append(
            logprob_row(
                _as_trained(sample, index),
                rollout_id=self.rollout_id,
                sample_index=index,
            )
        )
        self.num_rows += 1

    def _row(self, sample: JsonSample, index: int) -> Row:
        log_probs = sample.floats.get("rollout_log_probs")
        mask = sample.mask
        known = sample.response >= 0 and sample.total >= 0
        return {
            "rollout_id": self.rollout_id,
            "sample_index": index,
            "group_index": self._group(sample.group),
            "status": sample.status,
            "reward": sample.reward,
            "label": sample.label,
            "prompt": sample.prompt,
            "response": sample.text,
            "prompt_length": sample.total - sample.response if known else -1,
            "response_length": sample.response,
            "total_length": sample.total,
            "num_masked": None if mask is None else int(np.count_nonzero(mask == 0)),
            "tokens_kept": sample.tokens is not None,
            "tokens": sample.tokens,
            "loss_mask": mask,
            "rollout_log_probs": log_probs,
            "rollout_log_prob_mean": masked_mean(log_probs, mask),
            "metadata": values.to_json({"sample": sample.rest} if sample.rest else {}),
        }

    def _group(self, key: str | int | None) -> int | None:
        """A group's number: its own, or that of its first appearance."""
        if key is None or isinstance(key, int):
            return key
        return self._groups.setdefault(key, len(self._groups))


def _lines(path: Path, notes: Notes) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError):
                    torn = "ends in the middle of" if line[-1:] != b"\n" else "has"
                    notes.add(f"{path.name} {torn} a line that is no JSON ({number})")
                    continue
                if isinstance(found, dict):
                    yield found
    except FileNotFoundError as error:
        raise DumpMissing("there is no such file", where=str(path)) from error
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _keys(line: dict[str, Any]) -> str:
    return ", ".join(repr(key)[:40] for key in list(line)[:8]) or "none"


def _absent(
    metadata: RecordMetadata, spool: StageSpool, stage: StageFile
) -> RecordMetadata:
    absent = {
        name: "the file has none"
        for name in TOKEN_COLUMNS[stage]
        if name not in spool.filled
    }
    return dataclasses.replace(metadata, absent=absent)


def _as_trained(sample: JsonSample, index: int) -> TrainSample:
    return TrainSample(
        position=index,
        digest=b"",
        index=index,
        group=None,
        total=sample.total,
        response=max(sample.response, 0),
        padded=None,
        tokens=sample.tokens,
        mask=sample.mask,
        reward=sample.reward,
        normalized_reward=None,
        truncated=None,
        dp_rank=None,
        rollout_position=None,
        decoded=None,
        floats=sample.floats,
    )
