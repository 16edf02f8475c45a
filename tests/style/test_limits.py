"""Limits that keep every file and function small enough to hold in mind."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from own_files import SourceFile, exceptions, source_files

FILE_LINES = 400
TEST_FILE_LINES = 600
FUNCTION_LINES = 50
PARAMETERS = 6
NAMES_THAT_SAY_NOTHING = ("common", "core", "helper", "helpers", "manager", "util")

Measured = dict[str, tuple[int, int]]


def functions(
    file: SourceFile,
) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(f"{file.name}:{n.name}", n) for n in file.nodes() if isinstance(n, kinds)]


def file_lines() -> Measured:
    return {
        file.name: (
            file.num_lines,
            TEST_FILE_LINES if file.is_in("tests") else FILE_LINES,
        )
        for file in source_files()
    }


def function_lines() -> Measured:
    return {
        place: (node.end_lineno - node.lineno + 1, FUNCTION_LINES)
        for file in source_files()
        for place, node in functions(file)
    }


def parameters() -> Measured:
    return {
        place: (number_of_parameters(node), PARAMETERS)
        for file in source_files()
        if not file.is_in("tests")
        for place, node in functions(file)
    }


def number_of_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in named)


@pytest.mark.parametrize("measure", [file_lines, function_lines, parameters])
def test_sizes_stay_below_their_limits(measure: Callable[[], Measured]):
    excepted = exceptions(measure.__name__)
    over = {
        place: f"{size} of {excepted.get(place, limit)}"
        for place, (size, limit) in measure().items()
        if size > excepted.get(place, limit)
    }
    assert not over


@pytest.mark.parametrize("measure", [file_lines, function_lines, parameters])
def test_exceptions_are_still_needed(measure: Callable[[], Measured]):
    measured = measure()
    idle = {
        place: measured.get(place, "is gone")
        for place in exceptions(measure.__name__)
        if place not in measured or measured[place][0] <= measured[place][1]
    }
    assert not idle, "these fit the ordinary limit: take them off budgets.toml"


def test_module_names_say_what_is_in_them():
    vague = [
        file.name
        for file in source_files()
        for part in file.name.removesuffix(".py").split("/")
        if part.rstrip("s") in NAMES_THAT_SAY_NOTHING or part in NAMES_THAT_SAY_NOTHING
    ]
    assert not vague
