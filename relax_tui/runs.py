"""The runs of this user in a few words each, for `ls` and for the list."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relax.control.run_folder import (
    DriverState,
    driver_state,
    linked_runs,
    read_run_info,
)
from relax.errors import ArgumentError, RecordError
from relax.events.encoding import decode_event
from relax.events.tail import event_files
from relax.events.types import (
    Commanded,
    CommandKind,
    CommandPhase,
    Event,
    Paused,
    RunFailed,
    RunFinished,
    RunStarted,
    StageStarted,
)
from relax_tui.printing import quoted
from relax_tui.text import pad, visible, width

RUNS_FOLDER = Path("runs")
RUNS_SHOWN = 200
BEGIN_BYTES, END_BYTES = 256 * 1024, 64 * 1024


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in one row.

    Attributes:
        state: ``running``, ``paused``, ``stopping``, ``finished``, ``stopped``,
            ``failed``, ``lost``, ``other host`` or ``unreadable``.
        place: ``37/200``, the rollout that runs; ``200 of 200`` once that many are
            done; '' before the first rollout.
        last_event: Local time of the newest event.
    """

    name: str
    run_id: str
    state: str
    place: str
    last_event: str
    run_dir: str
    host: str = ""
    attempt: int = 1


def list_runs(folder: Path = RUNS_FOLDER) -> list[RunSummary]:
    """Linked runs and those under ``./runs``, newest first."""
    found: dict[Path, None] = {}
    for run_dir in linked_runs():
        found[run_dir.resolve()] = None
    if folder.is_dir():
        for run_dir in folder.iterdir():
            if (run_dir / "run.json").is_file():
                found[run_dir.resolve()] = None
    summaries = [summarise(run_dir) for run_dir in list(found)[:RUNS_SHOWN]]
    return sorted(summaries, key=lambda run: run.last_event, reverse=True)


def summarise(run_dir: Path) -> RunSummary:
    """One run; what cannot be read is said in its state."""
    try:
        info = read_run_info(run_dir)
        events = _edge_events(run_dir)
    except (RecordError, OSError):
        return RunSummary(
            name=run_dir.name,
            run_id="",
            state="unreadable",
            place="",
            last_event="",
            run_dir=str(run_dir),
        )
    driver = driver_state(info)
    newest = events[-1] if events else None
    payload = newest.payload if newest else None
    state, place = _state_and_place(events)
    if isinstance(payload, RunFinished):
        state = "finished" if payload.why == "done" else "stopped"
    elif isinstance(payload, RunFailed):
        state = "failed"
    elif driver is DriverState.DEAD:
        state = "lost"
    elif driver is DriverState.OTHER_HOST:
        state = "other host"
    wall = newest.wall if newest else info.started
    return RunSummary(
        name=info.name,
        run_id=info.run_id,
        state=state,
        place=place,
        last_event=time.strftime("%Y-%m-%d %H:%M", time.localtime(wall)),
        run_dir=str(run_dir),
        host=info.host,
        attempt=info.attempt,
    )


def _edge_events(run_dir: Path) -> list[Event]:
    """How the newest attempt began and what came last, without reading a long log."""
    files = event_files(run_dir)
    if not files:
        return []
    attempt = files[-1].name.partition("-")[0]
    first = next(path for path in files if path.name.startswith(attempt + "-"))
    with first.open("rb") as stream:
        lines = stream.read(BEGIN_BYTES).split(b"\n")
    begin: list[Event] = []
    for event in _decoded(lines):
        begin.append(event)
        if isinstance(event.payload, RunStarted):
            break
    with files[-1].open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(size - END_BYTES, 0))
        return [*begin, *_decoded(stream.read(END_BYTES).split(b"\n"))]


def _decoded(lines: Iterable[bytes]) -> Iterator[Event]:
    for text in lines:
        try:
            yield decode_event(text)
        except RecordError:
            # The edge cuts through a line, or its writer is in the middle of one.
            continue


def _state_and_place(events: list[Event]) -> tuple[str, str]:
    total, first, rollout, state = 0, 0, -1, "running"
    for event in events:
        match event.payload:
            case RunStarted(num_rollout=number, start_rollout_id=start):
                total, first, rollout = number, start, -1
            case StageStarted(rollout_id=number):
                state, rollout = "running", number
            case Paused(rollout_id=number):
                state, rollout = "paused", number
            case Commanded(
                kind=CommandKind.STOP | CommandKind.KILL, phase=CommandPhase.ACCEPTED
            ):
                state = "stopping"
            case RunFinished(rollouts=number):
                return state, f"{first + number} of {total}"
    return state, f"{rollout}/{total}" if rollout >= 0 else ""


def run_rows(runs: Sequence[RunSummary]) -> list[str]:
    """The list of runs as text, newest first.

    Args:
        runs: The runs.

    Returns:
        Column heads and a row a run; one row that says so when there is none.
    """
    if not runs:
        return ["no run yet: `relax-tui demo` starts one, `relax-tui --help` says more"]
    heads = ("NAME", "RUN", "STATE", "ROLLOUT", "LAST EVENT", "FOLDER")
    table = [heads] + [
        tuple(
            visible(text)
            for text in (
                run.name,
                run.run_id or "-",
                run.state,
                run.place or "-",
                run.last_event or "-",
                quoted(run.run_dir),
            )
        )
        for run in runs
    ]
    widths = [max(width(row[column]) for row in table) for column in range(5)]
    return [
        "  ".join([*(pad(row[n], widths[n]) for n in range(5)), row[5]])
        for row in table
    ]


def farewell(run_dir: Path) -> str:
    """What is said when the console that started a run is left."""
    state = summarise(run_dir).state
    how = "goes on" if state in ("running", "paused") else f"is {state}"
    command = f"relax-tui attach {quoted(str(run_dir))}"
    return f"the run {how}; back to it with: {command}"


def find_run(wanted: str | None) -> Path:
    """The run folder that a person means.

    Args:
        wanted: A folder, a run id, a name, or the beginning of one; None: the newest.

    Raises:
        ArgumentError: None fits, or several do.
    """
    if wanted and (Path(wanted) / "run.json").is_file():
        return Path(wanted)
    runs = list_runs()
    if not runs:
        raise ArgumentError(
            f"no run {wanted!r} is known" if wanted else "there is no run yet",
            hint="`relax-tui demo` starts one; a run folder can be given by its path",
        )
    if not wanted:
        return Path(runs[0].run_dir)
    exact = [r for r in runs if wanted in (r.run_id, r.name, Path(r.run_dir).name)]
    fits = exact or [
        r
        for r in runs
        if r.run_id.startswith(wanted) or Path(r.run_dir).name.startswith(wanted)
    ]
    if len(fits) == 1:
        return Path(fits[0].run_dir)
    if not fits:
        raise ArgumentError(
            f"no run {wanted!r} is known", hint="`relax-tui ls` lists the runs"
        )
    folders = ", ".join(r.run_dir for r in fits[:5])
    raise ArgumentError(f"{wanted!r} fits several runs: {folders}")
