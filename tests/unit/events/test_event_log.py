"""The event log: encoding, appending, following, torn lines."""

from __future__ import annotations

import dataclasses
import json
import math
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.errors import RecordError, RecordTooNew
from relax.events.append import EventWriter, attempts
from relax.events.encoding import decode_event, encode_event
from relax.events.tail import EventTail, last_event
from relax.events.types import (
    PAYLOADS,
    AttemptOpened,
    Event,
    Heartbeat,
    NotableLine,
    Paused,
    Stage,
    StageFinished,
    Unknown,
)
from relax.measure.reduction import Gauge, Max, Mean, Min, Sum

numbers = st.floats(allow_nan=True, allow_infinity=True)
reductions = st.one_of(
    st.builds(Sum, numbers),
    st.builds(Mean, numbers, numbers),
    st.builds(Max, numbers),
    st.builds(Min, numbers),
    st.builds(Gauge, numbers),
)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a == b


@given(st.dictionaries(st.text(), reductions), numbers)
def test_metrics_survive_the_log_bit_for_bit(metrics, seconds):
    payload = StageFinished(
        rollout_id=0, stage=Stage.TRAIN, seconds=seconds, metrics=metrics
    )
    back = decode_event(encode_event(Event(7, 2, 1.5, 2.5, payload)))
    assert (back.seq, back.attempt, back.wall, back.mono) == (7, 2, 1.5, 2.5)
    assert same(back.payload.seconds, seconds)
    assert back.payload.metrics.keys() == metrics.keys()
    for key, reduction in metrics.items():
        read = back.payload.metrics[key]
        assert type(read) is type(reduction)
        pairs = zip(
            dataclasses.astuple(read), dataclasses.astuple(reduction), strict=True
        )
        assert all(same(*pair) for pair in pairs)


@given(st.text())
def test_any_text_stays_one_line(text):
    event = Event(0, 1, 0.0, 0.0, NotableLine(file="f", offset=0, text=text))
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    if text.isascii():
        assert decode_event(line).payload.text == text


def test_every_payload_type_has_a_name_and_only_known_field_types():
    for name, kind in PAYLOADS.items():
        assert kind.type == name
        typing.get_type_hints(kind)


def test_an_unknown_event_is_kept_and_a_newer_schema_is_refused():
    line = b'{"v":1,"seq":0,"attempt":1,"wall":0,"mono":0,"type":"later","x":[1]}'
    event = decode_event(line)
    assert event.payload == Unknown(name="later", fields={"x": [1]})
    assert json.loads(encode_event(event)) == json.loads(line)
    with pytest.raises(RecordTooNew, match="schema version 2"):
        decode_event(line.replace(b'"v":1', b'"v":2'))
    with pytest.raises(RecordError, match="not an event"):
        decode_event(b"\x00\xff{")


def test_a_field_that_came_later_is_skipped_and_a_missing_one_is_named():
    ok = (
        b'{"v":1,"seq":0,"attempt":1,"wall":0,"mono":0,"type":"paused",'
        b'"before":"train","rollout_id":3,"new":1}'
    )
    assert decode_event(ok).payload == Paused(rollout_id=3, before=Stage.TRAIN)
    with pytest.raises(RecordError, match="rollout_id"):
        decode_event(ok.replace(b'"rollout_id":3,', b""))


def test_a_tail_gives_each_event_once_across_attempts(tmp_path):
    tail = EventTail(tmp_path)
    assert tail.poll() == []
    seen = []
    for attempt in (1, 2):
        assert attempts(tmp_path) == attempt - 1
        with EventWriter(tmp_path, run_id="r", attempt=attempt) as events:
            for _ in range(50):
                events.append(Heartbeat())
            events.append(Heartbeat(), sync=True)
        seen += tail.poll()
    assert [event.seq for event in seen] == list(range(104))
    assert [event.attempt for event in seen] == [1] * 52 + [2] * 52
    assert isinstance(seen[0].payload, AttemptOpened)
    assert tail.poll() == []
    assert tail.dropped == 0
    assert last_event(tmp_path).seq == 103


def test_a_torn_line_is_waited_for_in_the_open_file_and_dropped_in_a_closed_one(
    tmp_path,
):
    folder = tmp_path / "events"
    folder.mkdir()
    lines = [encode_event(Event(n, 1, 0.0, 0.0, Heartbeat())) for n in range(3)]
    first = folder / "a01-000.jsonl"
    first.write_bytes(lines[0] + lines[1][:20])
    tail = EventTail(tmp_path)
    assert [event.seq for event in tail.poll()] == [0]
    with first.open("ab") as stream:
        stream.write(lines[1][20:] + lines[2][:-1])
    assert [event.seq for event in tail.poll()] == [1]
    second = encode_event(Event(3, 2, 0.0, 0.0, Heartbeat()))
    (folder / "a02-000.jsonl").write_bytes(b"garbage\n" + second)
    assert [event.seq for event in tail.poll()] == [3]
    assert tail.dropped == 2


def test_a_full_queue_drops_and_counts_but_never_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("relax.events.append.QUEUE_EVENTS", 4)
    writer = EventWriter(tmp_path, run_id="r", attempt=1)
    for _ in range(10):
        writer.append(Heartbeat())
    assert writer.dropped == 6


def test_a_new_file_begins_with_a_snapshot_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr("relax.events.append.FILE_BYTES", 1_000)
    writer = EventWriter(tmp_path, run_id="r", attempt=1, state=lambda: {"x": 1})
    with writer:
        for _ in range(40):
            writer.append(Heartbeat())
    tail = EventTail(tmp_path)
    events = tail.poll()
    assert [event.seq for event in events] == list(range(len(events)))
    opened = [e for e in events if isinstance(e.payload, AttemptOpened)]
    files = sorted((tmp_path / "events").iterdir())
    assert len(opened) == len(files) > 2
    assert all(o.payload.state == {"x": 1} for o in opened)
    assert len(events) - len(opened) == 40
