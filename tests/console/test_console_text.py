"""The boundary between text from outside and the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax_tui.lines import Span, fit, line_width, plain
from relax_tui.text import cut, head, pad, visible, width, wrap

HOSTILE = (
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "\x0e\x0f shift",
    "[bold]not markup[/bold] [link=x]y[/link] [/think]",
    "你好，世界",
    "e\u0301 \u0301alone",
    "\u202etxt.exe\u2066",
    "a\u200bb\ufeffc",
    "👩\u200d👩\u200d👧 \ufe0f",
    "\ud800 lone",
    "tab\tnew\nline\r",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_dangerous_survives(text):
    shown = visible(text)
    for char in shown:
        assert char.isprintable() or char == " ", repr(char)
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Cn", "Co")


def test_what_it_looks_like():
    assert visible("\x1b[31m") == "␛[31m"
    assert visible("a\nb") == "a↵b"
    assert visible("\x9b") == "\\x9b"
    assert visible("\u202e") == "\\u202e"
    assert visible("\u0301x")[0] == "\u25cc"
    assert visible("你", ascii_only=True) == "\\u4f60"


@given(st.text())
def test_making_visible_twice_changes_nothing(text):
    assert visible(visible(text)) == visible(text)
    ascii_only = visible(text, ascii_only=True)
    assert ascii_only.isascii()
    assert ascii_only.isprintable() or not ascii_only


@given(st.text(), st.integers(0, 30))
def test_cells_are_never_exceeded(text, cells):
    shown = visible(text)
    assert width(head(shown, cells)) <= cells
    assert width(cut(shown, cells)) <= cells
    assert width(pad(shown, cells)) == cells
    assert line_width(fit((Span(shown), Span(shown, "bad")), cells)) <= cells


@given(st.text(), st.integers(2, 40))
def test_wrapping_loses_nothing_but_spaces(text, cells):
    lines = wrap(text, cells)
    assert all(width(piece) <= cells for piece in lines)
    kept = "".join(lines).replace(" ", "")
    assert kept.replace("\u25cc", "") == "".join(
        visible(part)
        for part in text.replace("\r\n", "\n").replace("\t", "").split("\n")
    ).replace(" ", "").replace("\u25cc", "")


def test_a_line_of_a_megabyte_wraps_in_one_pass():
    # Asking for the width of the rest at each break takes minutes here.
    lines = wrap("日\x1b" * (1 << 19), 78)
    assert len(lines) == -(-(1 << 19) * 3 // 78)
    assert all(width(piece) == 78 for piece in lines[:-1])
    marks = wrap("e" + "\u0301" * 1000, 10)
    assert "".join(marks) == "e" + "\u0301" * 1000


def test_a_cut_is_marked_and_never_splits_a_wide_character():
    assert cut("你好世界", 5) == "你好…"
    assert cut("你好世界", 4) == "你…"
    assert plain(fit((Span("abc"), Span("def")), 4)) == "abc…"
    assert plain(fit((Span("abc"), Span("def")), 3)) == "ab…"
