"""Snapshots of a run folder: one collector thread that follows events and records.

It looks four times a second (a stat, when nothing happened) and posts at most once a
second, except that the first data, and what a person waits for (answers to commands,
pauses, the end), are posted at once. Nothing here blocks the thread of the screen.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from relax.control.run_folder import DriverState, driver_state, read_run_info
from relax.errors import RecordError, RelaxError
from relax.events.tail import EventTail
from relax.events.types import (
    Commanded,
    Continued,
    Event,
    Paused,
    RolloutProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    StopConditionsSet,
)
from relax_tui.launch import DriverDied, Launch, death
from relax_tui.printing import quoted
from relax_tui.sources.again import Again, again_of
from relax_tui.sources.base import Header, Liveness, Notice, Post, RunSnapshot
from relax_tui.sources.fold import RunFold

POLL_SECONDS = 0.25
FIRST_POLL_SECONDS = 0.05
TICK_SECONDS = 1.0
LIVENESS_SECONDS = 1.0
READ_ROLLOUT_SECONDS = 1.0
_URGENT = (Commanded, Paused, Continued, RunFinished, RunFailed, StopConditionsSet)


def _has_samples(event: Event) -> bool:
    payload = event.payload
    return isinstance(payload, RolloutProgress) and payload.done > 0


class RunFolderSource:
    """Follows one run folder.

    Args:
        run_dir: The run folder; a run that is just being started may lack run.json.
        launch: The driver we started, to notice its end before run.json is there.
        read_only: Why no commands are wanted; '' when they are.
        on_died: Called when that driver ends before its run began.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        launch: Launch | None = None,
        read_only: str = "",
        on_died: Callable[[DriverDied], None] | None = None,
    ) -> None:
        self.run_dir = run_dir
        self._launch = launch
        self._read_only = read_only
        self._on_died = on_died
        self._post: Post | None = None
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._wake = threading.Event()
        self._ended = False
        self._saw_samples = False
        self._wanted: tuple[int, int] | None = None
        self._fold = RunFold()
        self._tail = EventTail(run_dir)
        self._records: object | None = None
        self._last: RunSnapshot | None = None
        self._last_posted = 0.0
        self._lost = ""
        self._other_host = ""
        self._next_liveness = 0.0
        self._problems: deque[Notice] = deque(maxlen=5)
        self._computed: Again | None = None
        self._computed_for: RunStarted | None = None

    def start(self, post: Post) -> None:
        """Begins to post snapshots, from a thread of its own."""
        self._post = post
        self._thread.start()

    def stop(self) -> None:
        """Ends posting."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Looks at another rollout; None follows the newest."""
        self._wanted = rollout
        self._last_posted = 0.0
        self._wake.set()

    def collect(self) -> RunSnapshot:
        """Everything there is now, in one go: for the headless report.

        Raises:
            RelaxError: The folder cannot be read.
        """
        self._fold.apply(self._tail.poll())
        self._judge_liveness(time.monotonic())
        return self._snapshot()

    def _run(self) -> None:
        while not self._ended:
            try:
                urgent = self._take_events()
                if self._driver_died():
                    return
                now = time.monotonic()
                self._judge_liveness(now)
                due = now - self._last_posted >= TICK_SECONDS
                if urgent or due:
                    self._publish(now)
            except (RelaxError, OSError) as error:
                self._problem(str(error))
            except Exception as error:  # noqa: BLE001 - or the screen would stand still
                self._problem(f"a defect of the console: {error!r}")
            self._wake.wait(POLL_SECONDS if self._saw_samples else FIRST_POLL_SECONDS)
            self._wake.clear()

    def _take_events(self) -> bool:
        events: Sequence[Event] = self._tail.poll()
        self._fold.apply(events)
        # The very first responses are what a person who started a run waits for.
        first = not self._saw_samples and any(map(_has_samples, events))
        self._saw_samples = self._saw_samples or first
        return first or any(isinstance(event.payload, _URGENT) for event in events)

    def _problem(self, text: str) -> None:
        if not self._problems or self._problems[-1].text != text:
            self._problems.append(Notice(wall=time.time(), word="READ", text=text))
            self._publish(time.monotonic())

    def _driver_died(self) -> bool:
        """Whether the driver we started ended without ever opening its run."""
        died = death(self._launch) if self._launch is not None else None
        if died is None:
            return False
        if self._on_died is not None:
            self._on_died(died)
        return True

    def _judge_liveness(self, now: float) -> None:
        if self._fold.liveness.ended:
            self._lost = ""
            return
        if now < self._next_liveness:
            return
        self._next_liveness = now + LIVENESS_SECONDS
        if self._launch is not None:
            # Reaps a driver of ours that ended, which would else look alive.
            self._launch.process.poll()
        try:
            info = read_run_info(self.run_dir)
        except RecordError as error:
            if self._launch is None:
                self._lost = f"no driver: {error.what}"
            return
        state = driver_state(info)
        if state is DriverState.DEAD:
            # The driver's last events may have come between our poll and its end.
            self._fold.apply(self._tail.poll())
            ended = self._fold.liveness.ended
            words = f"driver pid {info.pid} on {info.host} is gone"
            self._lost = "" if ended else words
        else:
            self._lost = ""
        if state is DriverState.OTHER_HOST:
            self._other_host = (
                f"the run is on {info.host}: ssh {quoted(info.host)} relax-tui attach"
                f" {quoted(str(self.run_dir))}"
            )

    def _snapshot(self) -> RunSnapshot:
        base = self._fold.snapshot(time.time(), lost=self._lost, at=self._wanted)
        header = replace(
            base.header if base.header.name else self._placeholder(base.header),
            run_dir=str(self.run_dir),
            read_only=self._read_only or self._other_host,
        )
        snapshot = replace(
            base,
            header=header,
            unread=self._unread(base.unread),
            again=self._again() if base.now.liveness is Liveness.LOST else None,
            notices=(*base.notices, *self._problems),
        )
        return self._with_records(snapshot)

    def _unread(self, told: tuple[str, ...]) -> tuple[str, ...]:
        problems = tuple(problem.text for problem in self._problems)
        dropped = self._tail.dropped
        if not dropped:
            return (*told, *problems)
        lines = "1 line" if dropped == 1 else f"{dropped} lines"
        were = "was" if dropped == 1 else "were"
        text = f"{lines} of the event log {were} not readable"
        return (text, *told, *problems)

    def _again(self) -> Again | None:
        """Worked out once: it is about files, and nothing changes them any more."""
        started = self._fold.started
        if started is not None and self._computed_for is not started:
            self._computed_for = started
            self._computed = again_of(
                self.run_dir,
                started,
                rollout_id=self._fold.rollout_id,
                wall=self._fold.started_wall,
            )
        return self._computed

    def _placeholder(self, header: Header) -> Header:
        return replace(header, name=self.run_dir.name)

    def _with_records(self, snapshot: RunSnapshot) -> RunSnapshot:
        if not (self.run_dir / "steps").is_dir():
            return snapshot
        # Arrow is loaded only once there is something to read with it.
        from relax_tui.sources.record import (  # noqa: PLC0415
            NOTHING_YET,
            RecordReader,
        )

        if not isinstance(self._records, RecordReader):
            self._records = RecordReader(self.run_dir)
        rollouts = self._records.rollouts()
        wanted = self._wanted or (rollouts[-1] if rollouts else None)
        if wanted is None:
            return snapshot
        viewed = self._records.view(wanted, vocab=self._fold.vocab)
        begun_only = viewed.note == NOTHING_YET and not viewed.damaged
        if self._wanted is None and begun_only and len(rollouts) > 1:
            # A rollout that only just began has nothing to look at.
            before = self._records.view(rollouts[-2], vocab=self._fold.vocab)
            viewed = before if before.rows else viewed
        return replace(snapshot, rollouts=rollouts, viewed=viewed)

    def _publish(self, now: float) -> None:
        snapshot = self._snapshot()
        if snapshot == self._last or self._post is None or self._ended:
            return
        first = self._last is None
        self._last = snapshot
        # An empty first look does not use up the tick: the first data come at once.
        if not (first and snapshot.now.liveness is Liveness.STARTING):
            self._last_posted = now
        self._post(snapshot)
