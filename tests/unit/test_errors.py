"""The error tree: codes, exit codes, and what comes through a process border."""

from __future__ import annotations

import copy
import pickle

import pytest

from relax import errors
from relax.errors import RelaxError


def tree(kind: type[RelaxError] = RelaxError) -> list[type[RelaxError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in tree(child))]


ALL = [kind for kind in tree() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "through", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_an_error_comes_through_unchanged(kind, through):
    error = kind("no memory", where="train-0", hint="use a smaller batch")
    back = through(error)
    assert type(back) is kind
    assert (back.what, back.where, back.hint) == (
        "no memory",
        "train-0",
        "use a smaller batch",
    )
    assert back.args == error.args
    assert str(back) == "train-0: no memory; use a smaller batch"


def test_codes_name_one_error_each():
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes) == len(ALL)
    assert all("code" in vars(kind) for kind in ALL)


def test_exit_codes_are_those_of_the_documented_tree():
    exit_codes = {kind.code: kind.exit_code for kind in RelaxError.__subclasses__()}
    assert exit_codes == {
        "argument": 2,
        "record": 3,
        "dump": 3,
        "engine": 4,
        "worker": 5,
        "control": 6,
        "cluster": 7,
        "internal": 70,
    }
    for kind in ALL:
        assert all(kind.exit_code == sub.exit_code for sub in tree(kind)[1:]) or (
            kind is RelaxError
        )
        assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "it broke"),
        ({"where": "rank 3"}, "rank 3: it broke"),
        ({"hint": "try again"}, "it broke; try again"),
    ],
)
def test_the_text_leaves_out_what_is_not_known(fields, text):
    assert str(RelaxError("it broke", **fields)) == text
