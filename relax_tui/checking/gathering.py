"""Everything that is known of a run, source by source, and evidence made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from relax.dump.decode.cache import decode_cached
from relax.dump.decode.client import Decoded, Progress
from relax.dump.entry import DumpEntry
from relax.dump.jsonl.read import read_jsonl
from relax.dump.logs.story import LogStory, PrintedSample, Spot
from relax.errors import DumpError, RecordError
from relax.measure.reduction import Metrics
from relax.records.open import StepRecord
from relax.records.schema import StageFile
from relax.triage.evidence import Precision, RolloutEvidence
from relax.triage.lint.given import by_name, read_given
from relax_tui.checking.checked import CheckOptions
from relax_tui.checking.inputs import Inputs
from relax_tui.checking.logs import numbers_of, read_logs
from relax_tui.checking.parts import (
    Parts,
    RolloutParts,
    RunFacts,
    add_numbers,
    add_record,
    columns_of,
    parts_of_run,
)

MOST_DUMP_BYTES: Final = 4 << 30
"""Of a folder with more, the first rollouts and the newest are decoded."""


class Gathering:
    """Everything that is known, source by source.

    Args:
        options: How to check.
        scratch: Folder for records made from JSONL.

    Attributes:
        parts: By rollout.
        facts: Of the whole run.
        stories: What the logs say.
        spots: Each log, and its numbers with their lines, by rollout.
        read, unread, missing: As in `Checked`.
    """

    def __init__(self, options: CheckOptions, scratch: Path) -> None:
        self.parts: Parts = {}
        self.facts = RunFacts()
        self.stories: list[LogStory] = []
        self.spots: list[tuple[Path, dict[int, dict[str, Spot]]]] = []
        self.read: list[str] = []
        self.unread: list[str] = []
        self.missing: list[str] = []
        self._options = options
        self._scratch = scratch
        self._printed: dict[int, list[PrintedSample]] = {}
        self._loaded_iteration = 0

    def take(self, inputs: Inputs, *, alone: bool) -> None:
        """Reads all sources.

        Args:
            inputs: What there is.
            alone: Whether one path was named: what cannot be read then is an error.
        """
        if options_file := self._options.arguments_file:
            for name, given in by_name(read_given(options_file)).items():
                short = name.rpartition(".")[2]
                self.facts.arguments[short] = given.value
                self.facts.origins[short] = given.origin
        for run_dir in inputs.runs:
            self._options.tell(f"reading {run_dir}")
            self.parts |= parts_of_run(run_dir, self.facts)
            self.read.append(f"run {run_dir}")
        self._take_logs(inputs.logs)
        self._take_dumps(inputs.dumps, alone=alone)
        for files in inputs.jsonl.values():
            self._take_jsonl(files)
        for folder in inputs.records:
            self._take_record(folder)
        self.missing += inputs.skipped

    def evidence(self, named: str) -> Iterator[RolloutEvidence]:
        """Evidence rollout by rollout; one rollout's tokens at a time."""
        for rollout_id in sorted(self.parts):
            part = self.parts[rollout_id]
            yield self._evidence(rollout_id, part, named)

    def _evidence(
        self, rollout_id: int, part: RolloutParts, named: str
    ) -> RolloutEvidence:
        facts = self.facts
        columns: Mapping[str, Sequence[Any]] = {}
        if part.record is not None:
            try:
                columns = columns_of(part.record)
            except RecordError as error:
                self.unread.append(str(error))
        printed = self._printed.get(rollout_id)
        if not columns and printed:
            # What a log shows of the responses, where nothing better is there.
            columns = {"response": [sample.text for sample in printed]}
        return RolloutEvidence(
            rollout_id=rollout_id,
            steps_per_rollout=self._steps_per_rollout(),
            metrics=part.metrics,
            columns=columns,
            vocab_size=facts.vocab_size or _size(facts.arguments.get("vocab_size")),
            arguments=facts.arguments,
            weights_match_reference=self._same_weights(rollout_id),
            log_probs_recomputed=self._recomputed(part.metrics),
            precision=_precision(facts),
            run=named,
        )

    def _steps_per_rollout(self) -> int | None:
        given = self.facts.arguments.get("num_steps_per_rollout")
        if isinstance(given, int) and not isinstance(given, bool):
            return given
        if self.facts.steps_per_rollout is not None:
            return self.facts.steps_per_rollout
        known = (story.steps_per_rollout for story in self.stories)
        return next((steps for steps in known if steps is not None), None)

    def _same_weights(self, rollout_id: int) -> bool | None:
        """False once a log says that trained weights were loaded."""
        return False if self._loaded_iteration and rollout_id >= 0 else None

    def _recomputed(self, metrics: Metrics) -> bool | None:
        """Whether log_probs have a pass of their own.

        A log shows their mean only when they were computed apart from the train step.
        """
        if self.facts.own or "rollout/log_probs" in metrics:
            return True
        trained = any(name.startswith("train/") for name in metrics)
        return False if trained and self.stories else None

    def _take_logs(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._options.tell(f"reading {path}")
            (story,) = read_logs([path], cancel=self._options.cancel)
            self.stories.append(story)
            self.read.append(f"log {path} ({story.lines:,} lines)")
            self.missing += [f"{path.name}: {note}" for note in story.notes]
            for name, (value, line) in story.arguments.items():
                self.facts.arguments.setdefault(name, value)
                self.facts.origins.setdefault(name, f"{path}:{line}")
            add_numbers(self.parts, numbers_of(story), source=str(path))
            self.spots.append((path, story.by_rollout()))
            self._loaded_iteration = max(self._loaded_iteration, _iteration(story))
            for sample in story.samples:
                self.parts.setdefault(sample.rollout_id, RolloutParts())
                self._printed.setdefault(sample.rollout_id, []).append(sample)

    def _take_dumps(self, entries: Sequence[DumpEntry], *, alone: bool) -> None:
        steps: dict[int, list[DumpEntry]] = {}
        for entry in entries:
            evaluation = entry.name.startswith("eval_")
            if not evaluation:
                steps.setdefault(entry.rollout_id or 0, []).append(entry)
        chosen, left = _chosen(steps)
        if left:
            self.missing.append(
                f"dumps of rollouts {left[0]} to {left[-1]} were not decoded: name one"
                " to check it"
            )
        for rollout_id in chosen:
            files = [
                file.path
                for entry in steps[rollout_id]
                for file in entry.files
                if not file.fault
            ]
            self.unread += [f for entry in steps[rollout_id] for f in entry.faults]
            if not files:
                continue
            self._options.tell(f"decoding the dump of rollout {rollout_id}")
            try:
                decoded = self._decode(files)
            except DumpError as error:
                if alone and len(steps) == 1:
                    raise
                self.unread.append(str(error))
                continue
            self._add(decoded, rollout_id)
            for entry in steps[rollout_id]:
                self._take_manifest(entry)

    def _decode(self, files: list[Path]) -> Decoded:
        def progress(told: Progress) -> None:
            share = told.done / told.total if told.total else 1.0
            self._options.tell(f"decoding {files[0].name}: {share:.0%}")

        return decode_cached(
            files,
            max_memory=self._options.max_memory,
            on_progress=progress,
            cancel=self._options.cancel,
        )

    def _take_manifest(self, entry: DumpEntry) -> None:
        if entry.manifest is None:
            return
        for name, given in entry.manifest.arguments.items():
            short = name.rpartition(".")[2]
            is_entry = isinstance(given, Mapping) and "value" in given
            self.facts.arguments.setdefault(
                short, given["value"] if is_entry else given
            )
            self.facts.origins.setdefault(short, str(entry.manifest_path))

    def _take_jsonl(self, files: Sequence[Path]) -> None:
        self._options.tell(f"reading {files[0]}")
        number = len(list(self._scratch.iterdir()))
        try:
            decoded = read_jsonl(files, self._scratch / str(number))
        except DumpError as error:
            self.unread.append(str(error))
            return
        self._add(decoded, decoded.rollout_id)

    def _take_record(self, folder: Path) -> None:
        record = StepRecord.at(folder, rollout_id=0)
        rollout_id = record.metadata(StageFile.SAMPLES).rollout_id
        add_record(self.parts, rollout_id, folder, source=str(folder))
        self.read.append(f"step record {folder}")

    def _add(self, decoded: Decoded, rollout_id: int) -> None:
        names = f"{decoded.files[0].name}" + (
            f" and {len(decoded.files) - 1} more" if len(decoded.files) > 1 else ""
        )
        source = f"{decoded.source_format} {names} ({decoded.num_samples} samples)"
        add_record(self.parts, rollout_id, decoded.folder, source=source)
        self.read.append(source)
        self.missing += [f"rollout {rollout_id}: {note}" for note in decoded.notes]


def _iteration(story: LogStory) -> int:
    """The iteration whose weights were loaded, as a log says; 0 for none."""
    found = 0
    for line in story.marked:
        if line.mark == "loaded_iteration":
            words = line.words.text.rpartition("iteration")[2].split()
            if words and words[0].isdecimal():
                found = max(found, int(words[0]))
    return found


def _chosen(steps: Mapping[int, Sequence[DumpEntry]]) -> tuple[list[int], list[int]]:
    """Rollouts to decode, and those left out: the first and the newest come first."""
    ids = sorted(steps)
    order = [*ids[:2], *reversed(ids[2:])]
    chosen: list[int] = []
    left = MOST_DUMP_BYTES
    for rollout_id in order:
        size = sum(entry.bytes for entry in steps[rollout_id])
        if chosen and size > left:
            break
        left -= size
        chosen.append(rollout_id)
    return sorted(chosen), sorted(set(ids) - set(chosen))


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _precision(facts: RunFacts) -> Precision | None:
    if facts.arguments.get("bf16"):
        return "bfloat16"
    if facts.arguments.get("fp16"):
        return "float16"
    return "float32" if facts.own else None
