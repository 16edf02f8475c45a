"""Which requests of the embedded engine are admitted together."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from relax.backends.embedded.decode import Row
from relax.backends.embedded.waiting import WaitingRows
from relax.backends.rollout import GenerateRequest, SamplingParams, Together

NEVER = 3600.0
"""Patience that a test which waits in vain does not survive."""

ONE_TOKEN = SamplingParams(
    max_new_tokens=1,
    temperature=1.0,
    top_p=1.0,
    top_k=-1,
    stop=(),
    stop_token_ids=(),
    seed=0,
    skip_special_tokens=True,
)


def row(number, *, count, name="set"):
    together = Together(name=name, number=number, count=count)
    request = GenerateRequest(
        request_id=f"{name}-{number}",
        input_ids=(1,),
        sampling=ONE_TOKEN,
        together=together,
    )
    return Row(request=request, limit=1, ticket=Future(), stop_text=None)


def ids(rows):
    return [row.request.request_id for row in rows]


@pytest.fixture
def waiting():
    return WaitingRows(threading.Condition(), enough=2, patience=NEVER)


def test_a_set_is_waited_for_and_put_in_order(waiting):
    late = threading.Thread(
        target=lambda: [waiting.add(row(number, count=4)) for number in (2, 0, 1)]
    )
    waiting.add(row(3, count=4))
    late.start()
    waiting.gather(lambda: False)
    late.join()
    assert ids(waiting.take(9)) == ["set-0", "set-1", "set-2", "set-3"]


def test_what_of_a_set_found_no_place_is_not_waited_for_again(waiting):
    for number in range(4):
        waiting.add(row(number, count=4))
    waiting.gather(lambda: False)
    assert ids(waiting.take(2)) == ["set-0", "set-1"]
    waiting.gather(lambda: False)
    assert ids(waiting.take(2)) == ["set-2", "set-3"]


def test_a_set_that_comes_while_another_waits_is_complete_too(waiting):
    for number in range(4):
        waiting.add(row(number, count=4))
    waiting.gather(lambda: False)
    waiting.take(2)
    waiting.add(row(1, count=2, name="eval"))
    late = threading.Timer(0.05, waiting.add, [row(0, count=2, name="eval")])
    late.start()
    waiting.gather(lambda: False)
    assert len(waiting) == 4


def test_a_request_that_never_comes_ends_the_patience():
    waiting = WaitingRows(threading.Condition(), enough=2, patience=0.01)
    waiting.add(row(0, count=2))
    waiting.gather(lambda: False)
    assert ids(waiting.take(9)) == ["set-0"]


def test_closing_ends_the_wait(waiting):
    waiting.add(row(0, count=2))
    waiting.gather(lambda: True)
    assert len(waiting) == 1
