"""Runs of other engines, read-only: logs that may still grow, dumps, JSONL.

One collector thread follows the logs and decodes the dump that is looked at; what the
rules say comes from `relax-tui check` in a process of its own, so that the console
computes nothing and says what the headless check says.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relax.dump.logs.read import LogReader
from relax.errors import RelaxError
from relax.triage.verdict import Verdict
from relax_tui.checking.inputs import Inputs, classify
from relax_tui.checking.logs import numbers_of
from relax_tui.sources.ages import coarse_age
from relax_tui.sources.base import (
    Figure,
    Header,
    Liveness,
    Notice,
    Now,
    Post,
    RolloutView,
    RunSnapshot,
)
from relax_tui.sources.foreign_records import ForeignRecords
from relax_tui.sources.foreign_verdicts import ForeignVerdicts
from relax_tui.sources.metric_book import MetricBook
from relax_tui.sources.shape import figures, verdict_lines

POLL_SECONDS = 0.25
TICK_SECONDS = 1.0
LOOK_SECONDS = 5.0
QUIET_SECONDS = 60.0

NAMES = {
    "train/train_rollout_logprob_abs_diff": "logprob_rollout/abs_diff",
    "train/entropy_loss": "rollout/entropy",
}
"""Other engines' numbers that stand in for ours on the curves, where ours are not."""


class ForeignSource:
    """Follows logs and dumps of a run that this engine did not start.

    Args:
        paths: Logs, dump folders, dump files, JSONL.

    Raises:
        DumpError: One cannot be read, or nothing in it is known.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.run_dir = paths[0]
        self._paths = tuple(paths)
        self._scratch = tempfile.TemporaryDirectory(prefix="relax-foreign-")
        self._inputs = classify(self._paths)
        self._logs: dict[Path, LogReader] = {}
        self._records = ForeignRecords(Path(self._scratch.name))
        self._records.take(self._inputs)
        self._verdicts = ForeignVerdicts(self._paths)
        self._numbers: dict[int, dict[str, float]] = {}
        self._wanted: tuple[int, int] | None = None
        self._post: Post | None = None
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._wake = threading.Event()
        self._cancel = threading.Event()
        self._last: RunSnapshot | None = None
        self._next_look = 0.0
        self._next_tick = 0.0
        self._problem = ""

    def start(self, post: Post) -> None:
        """Begins to post snapshots, from a thread of its own."""
        self._post = post
        self._thread.start()

    def stop(self) -> None:
        """Ends posting, decoding and judging."""
        self._cancel.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._verdicts.stop()
        for reader in self._logs.values():
            reader.__exit__()
        self._scratch.cleanup()

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Looks at another rollout; None follows the newest."""
        self._wanted = rollout
        self._next_tick = 0.0
        self._wake.set()

    def collect(self) -> RunSnapshot:
        """Everything there is now, judged: for the headless report.

        Raises:
            DumpError: Something cannot be read.
        """
        while self._read_logs():
            pass
        self._verdicts.run_now()
        return self._snapshot(self._viewed(tell=None))

    # The collector

    def _run(self) -> None:
        while not self._cancel.is_set():
            try:
                grew = self._read_logs()
                now = time.monotonic()
                self._look(now)
                judged = self._verdicts.poll()
                if grew and now < self._next_tick:
                    continue
                if judged or now >= self._next_tick:
                    self._next_tick = now + TICK_SECONDS
                    self._publish()
                self._problem = ""
            except (RelaxError, OSError) as error:
                self._problem = str(error)
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()

    def _read_logs(self) -> bool:
        """Reads one block of each log; whether there was any."""
        grew = False
        for path in self._inputs.logs:
            reader = self._logs.get(path)
            if reader is None:
                reader = self._logs[path] = LogReader(path)
            if reader.poll():
                grew = True
                self._verdicts.changed()
        if grew:
            self._numbers = {}
        return grew

    def _look(self, now: float) -> None:
        """New logs and dumps appear while a run goes on."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        found = classify(self._paths)
        if _known(found) != _known(self._inputs):
            self._verdicts.changed()
        self._inputs = found
        self._records.take(found)

    def _publish(self) -> None:
        def tell(view: RolloutView) -> None:
            self._hand_over(self._snapshot(view))

        self._hand_over(self._snapshot(self._viewed(tell=tell)))

    def _hand_over(self, snapshot: RunSnapshot) -> None:
        if snapshot != self._last and self._post is not None:
            self._last = snapshot
            if not self._cancel.is_set():
                self._post(snapshot)

    def _viewed(self, tell: object) -> RolloutView | None:
        rollouts = self._rollouts()
        wanted = self._wanted or (rollouts[-1] if rollouts else None)
        if wanted is None:
            return None
        samples = [
            sample
            for reader in self._logs.values()
            for sample in reader.story.samples
            if sample.rollout_id == wanted[1]
        ]
        return self._records.view(
            wanted,
            printed=samples,
            tell=tell if callable(tell) else None,
            cancel=self._cancel,
        )

    def _rollouts(self) -> tuple[tuple[int, int], ...]:
        printed = {
            sample.rollout_id
            for reader in self._logs.values()
            for sample in reader.story.samples
        }
        ids = sorted(set(self._records.rollouts()) | printed)
        return tuple((1, number) for number in ids)

    # The snapshot

    def _snapshot(self, viewed: RolloutView | None) -> RunSnapshot:
        numbers = self._all_numbers()
        first, newest = min(numbers, default=None), max(numbers, default=-1)
        verdicts = said = self._verdicts.by_rule
        if self._wanted is not None:
            # Looking back: as things stood after that rollout.
            back = self._wanted[1]
            numbers = {number: v for number, v in numbers.items() if number <= back}
            said = _said_of(verdicts, back)
        book = MetricBook()
        book.first_rollout = first
        for rollout_id, values in numbers.items():
            book.take_values(rollout_id, values, source="log")
        return RunSnapshot(
            header=self._header(),
            now=self._now(newest),
            first_rollout=book.first_rollout,
            figures=_known_figures(figures(book.first, verdicts, book.first_rollout)),
            series=book.series(),
            latest=book.latest(),
            latest_rollouts=book.rollouts(),
            verdicts=verdict_lines(said),
            notices=self._notices(),
            rollouts=self._rollouts(),
            viewed=viewed,
            following=self._wanted is None,
        )

    def _all_numbers(self) -> dict[int, dict[str, float]]:
        if not self._numbers:
            found: dict[int, dict[str, float]] = {}
            for reader in self._logs.values():
                for rollout_id, values in numbers_of(reader.story).items():
                    mine = found.setdefault(rollout_id, {})
                    mine |= {k: v for k, v in values.items() if k not in mine}
            for values in found.values():
                _add_derived(values)
            self._numbers = dict(sorted(found.items()))
        return self._numbers

    def _header(self) -> Header:
        engines = {reader.story.engine for reader in self._logs.values()} - {""}
        whose = ", ".join(sorted(engines)) or "another engine"
        log = self._inputs.logs[0] if self._inputs.logs else None
        return Header(
            name=self.run_dir.name or str(self.run_dir),
            run_dir=str(self.run_dir),
            mode="foreign",
            read_only=f"a run of {whose}: it can be looked at, not steered",
            log="" if log is None else str(log.absolute()),
        )

    def _now(self, newest: int) -> Now:
        ages = [time.time() - log.stat().st_mtime for log in self._existing()]
        age = min(ages, default=None)
        quiet = age is None or age >= QUIET_SECONDS
        told = "no log" if age is None else f"the log is {coarse_age(age)} old"
        return Now(
            liveness=Liveness.QUIET if quiet else Liveness.RUNNING,
            detail=told if quiet else "",
            rollout_id=newest,
            data_age="" if quiet or age is None else coarse_age(age),
        )

    def _existing(self) -> list[Path]:
        return [path for path in self._inputs.logs if path.exists()]

    def _notices(self) -> tuple[Notice, ...]:
        texts = [note for reader in self._logs.values() for note in reader.story.notes]
        texts += [*self._inputs.skipped, *self._records.notes, *self._verdicts.notes]
        if self._problem:
            texts.append(self._problem)
        reading = [
            f"{path.name}: {reader.progress.done / reader.progress.total:.0%} read"
            for path, reader in self._logs.items()
            if reader.progress.done < reader.progress.total
        ]
        return tuple(
            Notice(wall=0.0, word="READ", text=text) for text in [*texts, *reading]
        )


def _said_of(
    verdicts: Mapping[str, Sequence[Verdict]], rollout_id: int
) -> dict[str, list[Verdict]]:
    """What was said of one rollout."""
    found = {
        rule: [v for v in given if v.where.rollout_id == rollout_id]
        for rule, given in verdicts.items()
    }
    return {rule: given for rule, given in found.items() if given}


def _known_figures(found: Sequence[Figure]) -> tuple[Figure, ...]:
    """What a log does not hold will not come either: "not yet" would be wrong."""
    return tuple(
        figure if figure.text else replace(figure, text="not known") for figure in found
    )


def _known(inputs: Inputs) -> tuple[object, ...]:
    dumps = [(entry.name, entry.kind, entry.bytes) for entry in inputs.dumps]
    return dumps, inputs.jsonl, inputs.logs


def _add_derived(values: dict[str, float]) -> None:
    """Numbers that follow from those of a log: KL is linear in its two means."""
    ours, theirs = values.get("rollout/log_probs"), values.get("rollout/ref_log_probs")
    if ours is not None and theirs is not None:
        values.setdefault("rollout/kl", ours - theirs)
    for name, stands_for in NAMES.items():
        if name in values:
            values.setdefault(stands_for, values[name])
