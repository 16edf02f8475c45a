"""Samples of foreign runs: dumps decoded when looked at, JSONL, printed responses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from relax.dump.decode.cache import decode_cached
from relax.dump.decode.client import Decoded, Progress
from relax.dump.jsonl.read import read_jsonl
from relax.dump.logs.story import PrintedSample
from relax.errors import DumpError, RecordError
from relax.records.open import StepRecord, Vocabulary, read_vocabulary
from relax_tui.checking.inputs import Inputs
from relax_tui.sources.base import RolloutView, SampleRow
from relax_tui.sources.record import record_view
from relax_tui.sources.sample_rows import flags

KEPT_VIEWS = 3
UNKNOWN_LENGTH = -1


class ForeignRecords:
    """Rollouts whose samples are in dumps or JSONL.

    Args:
        scratch: Folder for records made from JSONL.

    Attributes:
        notes: What was odd about what was decoded.
    """

    def __init__(self, scratch: Path) -> None:
        self.notes: tuple[str, ...] = ()
        self._scratch = scratch
        self._dumps: dict[int, tuple[Path, ...]] = {}
        self._jsonl: dict[int, tuple[Path, ...]] = {}
        self._views: dict[tuple[int, tuple[object, ...]], RolloutView] = {}
        self._versions = 0

    def take(self, inputs: Inputs) -> None:
        """Takes what is there now."""
        dumps: dict[int, list[Path]] = {}
        for entry in inputs.dumps:
            if entry.rollout_id is not None and not entry.name.startswith("eval_"):
                usable = [file.path for file in entry.files if not file.fault]
                dumps.setdefault(entry.rollout_id, []).extend(usable)
        self._dumps = {number: tuple(files) for number, files in dumps.items() if files}
        self._jsonl = {number: tuple(paths) for number, paths in inputs.jsonl.items()}

    def rollouts(self) -> list[int]:
        """Rollouts that have samples."""
        return sorted(self._dumps.keys() | self._jsonl.keys())

    def view(
        self,
        rollout: tuple[int, int],
        *,
        printed: Sequence[PrintedSample],
        tell: Callable[[RolloutView], None] | None,
        cancel: threading.Event,
    ) -> RolloutView:
        """The samples of a rollout.

        Args:
            rollout: Attempt (always 1) and rollout id.
            printed: Responses that a log shows of it, for when there is nothing else.
            tell: Given a view without rows that says how far decoding is.
            cancel: Decoding ends soon after it is set.
        """
        number = rollout[1]
        files = self._dumps.get(number) or self._jsonl.get(number) or ()
        state = (*((str(f), f.stat().st_size) for f in files if f.exists()),)
        if not files:
            return _printed_view(rollout, printed)
        key = (number, state)
        known = self._views.get(key)
        if known is None:
            self._versions += 1
            try:
                known = self._read(rollout, files, tell=tell, cancel=cancel)
            except (DumpError, RecordError) as error:
                known = _empty(rollout, str(error))
            known = replace(known, version=self._versions)
            self._views[key] = known
            while len(self._views) > KEPT_VIEWS:
                del self._views[next(iter(self._views))]
        return known

    def _read(
        self,
        rollout: tuple[int, int],
        files: tuple[Path, ...],
        *,
        tell: Callable[[RolloutView], None] | None,
        cancel: threading.Event,
    ) -> RolloutView:
        def progress(told: Progress) -> None:
            if tell is not None and told.total:
                share = told.done / told.total
                tell(_empty(rollout, f"decoding {files[0].name}: {share:.0%}"))

        if rollout[1] in self._dumps:
            decoded = decode_cached(files, on_progress=progress, cancel=cancel)
        else:
            decoded = read_jsonl(
                files, self._scratch / f"{rollout[1]}-{self._versions}"
            )
        self.notes = tuple(f"rollout {rollout[1]}: {note}" for note in decoded.notes)
        return _decoded_view(rollout, decoded)


def _decoded_view(rollout: tuple[int, int], decoded: Decoded) -> RolloutView:
    def vocabulary(name: str) -> Vocabulary | None:
        path = decoded.folder / name
        return read_vocabulary(path) if name and path.is_file() else None

    record = StepRecord.at(decoded.folder, rollout_id=rollout[1])
    view = record_view(record, rollout, vocabulary=vocabulary)
    # A dump does not know the weights' version, and -1 would be taken for one.
    known = view.weights_version is not None and view.weights_version >= 0
    return view if known else replace(view, weights_version=None)


def _printed_view(
    rollout: tuple[int, int], printed: Sequence[PrintedSample]
) -> RolloutView:
    """Responses out of a log: text and reward, nothing else is known."""
    rows = []
    for number, sample in enumerate(printed):
        row = SampleRow(
            row=number,
            index=number,
            group=None,
            status="printed",
            reward=sample.reward,
            length=UNKNOWN_LENGTH,
            prompt="",
            response=sample.text,
        )
        rows.append(replace(row, flags=flags(row, ())))
    return RolloutView(
        attempt=rollout[0],
        rollout_id=rollout[1],
        version=len(rows),
        complete=True,
        note="" if rows else "the log shows no response of this rollout",
        rows=tuple(rows),
    )


def _empty(rollout: tuple[int, int], note: str) -> RolloutView:
    return RolloutView(attempt=rollout[0], rollout_id=rollout[1], version=0, note=note)
