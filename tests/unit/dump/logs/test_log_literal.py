"""Printed Python values are read, never evaluated."""

from __future__ import annotations

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from relax.dump.logs.literal import NotALiteral, Opaque, parse_literal

PLAIN = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False)
    | some.text(),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(some.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_what_python_prints_is_read_back(value):
    text = repr(value)
    read, end = parse_literal(text + " and more")
    assert end == len(text)
    assert read == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("np.float64(0.25)", 0.25),
        ("numpy.int32(-3)", -3),
        ("np.True_", Opaque("np.True_")),
        ("tensor(0.5, device='cuda:0')", 0.5),
        ("tensor([1.5], dtype=torch.float32)", [1.5]),
        ("array([1, 2], dtype=int64)", [1, 2]),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("1e-06", 1e-06),
        ("<Status.COMPLETED: 'completed'>", Opaque("<Status.COMPLETED: 'completed'>")),
        ("__import__('os').system('true')", Opaque("__import__")),
        ("(1, 2,)", [1, 2]),
    ],
)
def test_values_of_libraries(text, value):
    assert parse_literal(text)[0] == value


def test_nan():
    read, _ = parse_literal("{'a': nan, 'b': np.float32(nan)}")
    assert math.isnan(read["a"])
    assert math.isnan(read["b"])


@pytest.mark.parametrize("text", ["", "{", "{'a': 1", "['x", "{'a' 1}", "(" * 99])
def test_what_is_cut_short_is_refused(text):
    with pytest.raises(NotALiteral):
        parse_literal(text)


@given(some.text(alphabet="{}[]()'\":,\\ab1.-<>n=", max_size=40))
def test_any_text_is_a_literal_or_none(text):
    try:
        _, end = parse_literal(text)
    except NotALiteral:
        return
    assert 0 < end <= len(text)


def test_agrees_with_python_on_escapes():
    text = r"'a\n\t\x41\u4e2d\\ \' end'"
    assert parse_literal(text)[0] == ast.literal_eval(text)
