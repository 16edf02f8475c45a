"""What is carried over from another node arrives whole, once and in order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.errors import InternalError
from relax.observe import spool
from relax.observe.spool import Arrivals, Taken, take

NAMES = ("logs/train-1.log", "logs/stacks-train-1.txt", "logs/engine-1.log")


@given(
    writes=st.lists(
        st.tuples(st.sampled_from(NAMES), st.binary(min_size=1, max_size=40)),
        max_size=30,
    ),
    seed=st.integers(0, 1000),
)
def test_all_arrives_whatever_gets_lost_on_the_way(
    writes, seed, tmp_path_factory, small_answers
):
    there, here = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("here")
    chance, arrivals = random.Random(seed), Arrivals(here)
    written = dict.fromkeys(NAMES, b"")
    for name, piece in writes:
        path = there / name
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as stream:
            stream.write(piece)
        written[name] += piece
        if chance.random() < 0.5:
            answer = take(there, arrivals.arrived)
            if chance.random() < 0.5:  # else the answer is lost
                arrivals.put(answer)
    more = True
    while more:
        answer = take(there, arrivals.arrived)
        assert sum(map(len, answer.pieces.values())) <= small_answers
        arrivals.put(answer)
        more = answer.more
    for name, content in written.items():
        path = here / name
        assert (path.read_bytes() if path.exists() else b"") == content


@pytest.fixture(scope="module")
def small_answers():
    """Answers of 64 bytes, so that most need several."""
    before, spool.MOST_BYTES = spool.MOST_BYTES, 64
    yield 64
    spool.MOST_BYTES = before


def test_what_an_earlier_attempt_left_stays_before_it(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train-1.log").write_bytes(b"first attempt\n")
    arrivals = Arrivals(tmp_path)
    arrivals.put(Taken(pieces={"logs/train-1.log": b"second\n"}, more=False))
    found = (tmp_path / "logs" / "train-1.log").read_bytes()
    assert found == b"first attempt\nsecond\n"
    assert arrivals.arrived == {"logs/train-1.log": 7}


@pytest.mark.parametrize("name", ["../out", "/etc/out", "logs/../../out"])
def test_nothing_is_written_outside_the_run_folder(name, tmp_path):
    with pytest.raises(InternalError, match="outside"):
        Arrivals(tmp_path / "run").put(Taken(pieces={name: b"x"}, more=False))
    assert not (tmp_path / "out").exists()


def test_a_link_in_a_spool_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    there = tmp_path / "there"
    there.mkdir()
    (there / "link").symlink_to(secret)
    assert take(there, {}).pieces == {}
