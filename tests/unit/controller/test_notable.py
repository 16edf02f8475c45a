"""Notable lines of workers' logs: found with their place, few, and only new ones."""

from __future__ import annotations

import pytest

from relax.controller import notable
from relax.controller.notable import MOST_EVENTS, MOST_OF_A_KIND, LogWatch
from relax.events.types import NotableLine


class Kept:
    """An event sink that keeps what it is told."""

    def __init__(self):
        self.events = []

    def append(self, payload, *, sync=False):
        self.events.append(payload)


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def add(path, text):
    with path.open("a", newline="") as stream:
        stream.write(text)


def test_a_notable_line_comes_with_its_file_and_byte(logs, tmp_path):
    kept, log = Kept(), logs / "train-0.log"
    watch = LogWatch(tmp_path, events=kept)
    before = "step 1: fine\nno errors so far\n"
    add(log, before + "RuntimeError: CUDA error: an illegal memory access\nfine\n")
    watch.look()
    (line,) = kept.events
    assert line == NotableLine(
        file="logs/train-0.log",
        offset=len(before),
        text="RuntimeError: CUDA error: an illegal memory access",
    )
    assert log.read_bytes()[line.offset :].startswith(b"RuntimeError: CUDA")


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
        "ncclSystemError: System call failed",
        "SIGQUIT received. signum=None, frame=None. It usually means a child failed",
        "Watchdog timeout (self.watchdog_last_forward_ct=5)",
    ],
)
def test_known_signatures(logs, tmp_path, text):
    kept = Kept()
    watch = LogWatch(tmp_path, events=kept)
    add(logs / "sglang-0.log", f"{text}\n")
    watch.look()
    assert [line.text for line in kept.events] == [text]


def test_ordinary_lines_and_the_drivers_own_log_are_silent(logs, tmp_path):
    kept = Kept()
    watch = LogWatch(tmp_path, events=kept)
    add(logs / "engine.log", "ValueError: told as an event already\n")
    add(logs / "train-0.log", "loss 0.5\nerror_count=0\nerrors: none\n")
    watch.look(ended=True)
    assert kept.events == []


def test_a_line_counts_when_it_is_whole_or_when_nobody_writes_any_more(logs, tmp_path):
    kept, log = Kept(), logs / "train-0.log"
    watch = LogWatch(tmp_path, events=kept)
    add(log, "first\nValueError: half of")
    watch.look()
    assert kept.events == []
    add(log, " a line")
    watch.look(ended=True)
    assert [line.text for line in kept.events] == ["ValueError: half of a line"]
    watch.look(ended=True)
    assert len(kept.events) == 1


def test_what_an_earlier_attempt_wrote_is_not_told_again(logs, tmp_path):
    add(logs / "train-0.log", "ValueError: of long ago\n")
    kept = Kept()
    watch = LogWatch(tmp_path, events=kept)
    add(logs / "train-0.log", "KeyError: new\n")
    watch.look()
    assert [line.text for line in kept.events] == ["KeyError: new"]


def test_a_flood_gives_few_events(logs, tmp_path):
    kept = Kept()
    watch = LogWatch(tmp_path, events=kept)
    add(logs / "train-0.log", "ValueError: again\n" * 50_000)
    watch.look()
    assert len(kept.events) == MOST_OF_A_KIND
    for number in range(MOST_EVENTS):
        add(logs / f"reward-{number}.log", "ValueError: again\n" * 5)
    watch.look()
    assert len(kept.events) == MOST_EVENTS


def test_a_secret_of_the_environment_is_not_repeated(logs, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "planted-in-a-log")
    kept = Kept()
    watch = LogWatch(tmp_path, events=kept)
    add(logs / "train-0.log", "HTTPError: 401 for planted-in-a-log\n")
    watch.look()
    assert [line.text for line in kept.events] == ["HTTPError: 401 for <redacted>"]


def test_all_marks_that_are_asked_for_exist():
    assert set(notable._MARKS) <= set(notable.MARKS)
