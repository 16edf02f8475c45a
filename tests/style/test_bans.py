"""Bans that ruff cannot express, each with the trouble it keeps away."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest
from own_files import (
    SourceFile,
    exceptions,
    files_of_tests,
    product_files,
    source_files,
)


@dataclass(frozen=True, kw_only=True)
class Ban:
    """A pattern that must not appear.

    Attributes:
        why: What goes wrong otherwise.
        found: Whether a node is the pattern.
        files: Where it must not appear.
        bad, good: One line that the ban must find, and one that it must not.
    """

    name: str
    why: str
    found: Callable[[ast.AST], bool]
    files: Callable[[], Iterable[SourceFile]]
    bad: str
    good: str


def calls_method(name: str) -> Callable[[ast.AST], bool]:
    def found(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == name
        )

    return found


def loose_zip(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "zip"
        and not any(
            keyword.arg == "strict"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
            for keyword in node.keywords
        )
    )


def getattr_with_default(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) == 3
        # A dunder is no setting: `__name__` is asked of what may have none.
        and not ast.unparse(node.args[1]).strip("'\"").startswith("__")
    )


def filler(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return False
    return any(
        isinstance(side, ast.List)
        and len(side.elts) == 1
        and isinstance(side.elts[0], ast.Constant)
        and isinstance(side.elts[0].value, float)
        for side in (node.left, node.right)
    )


def environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(
            alias.name in ("environ", "getenv", "putenv") for alias in node.names
        )
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in ("environ", "getenv", "putenv")
    )


def at_least_one(node: ast.AST) -> bool:
    """``max(x, 1)`` as a divisor: a mean of nothing that looks like a number."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and isinstance(node.right, ast.Call)
        and isinstance(node.right.func, ast.Name)
        and node.right.func.id == "max"
        and any(isinstance(a, ast.Constant) and a.value == 1 for a in node.right.args)
    )


def replaces_module(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # monkeypatch.setitem(sys.modules, …)
        targets = node.args[:1] if node.func.attr in ("setitem", "update") else []
    return any("sys.modules" in ast.unparse(target) for target in targets)


def sleeps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"


def engine_files() -> Iterator[SourceFile]:
    """Files of the engine; the console looks up its actions by name."""
    return (file for file in product_files() if file.is_in("relax"))


def outside_formulas() -> Iterator[SourceFile]:
    """Product files other than those that hold formulas or run models."""
    formulas = ("relax/measure", "relax/algorithms", "relax/backends", "relax/triage")
    return (file for file in product_files() if not file.is_in(*formulas))


BANS = [
    Ban(
        name="loose_zip",
        why="pairs that may not match pass in silence",
        found=loose_zip,
        files=source_files,
        bad="zip(a, b, strict=False)",
        good="zip(a, b, strict=True)",
    ),
    Ban(
        name="getattr_with_default",
        why="a misspelt setting becomes its default",
        found=getattr_with_default,
        files=engine_files,
        bad="getattr(settings, 'lr', 0.1)",
        good="getattr(settings, name)",
    ),
    Ban(
        name="nan_to_num",
        why="the number that would have shown the fault is repaired",
        found=calls_method("nan_to_num"),
        files=source_files,
        bad="kl.nan_to_num(0.0)",
        good="kl.isnan()",
    ),
    Ban(
        name="filler",
        why="absent becomes zero, and a log-prob of zero means certainty",
        found=filler,
        files=product_files,
        bad="[0.0] * n",
        good="[0.0, 1.0]",
    ),
    Ban(
        name="at_least_one",
        why="the mean of nothing looks like a number",
        found=at_least_one,
        files=engine_files,
        bad="total / max(count, 1)",
        good="max(1, total / count)",
    ),
    Ban(
        name="mean",
        why="metrics are reductions, and a mean of means is wrong",
        found=calls_method("mean"),
        files=outside_formulas,
        bad="rewards.mean()",
        good="Mean(total, count)",
    ),
    Ban(
        name="environment",
        why="control by environment variables is seen by nobody",
        found=environment,
        files=product_files,
        bad="os.environ['HOME']",
        good="os.getpid()",
    ),
    Ban(
        name="replaces_module",
        why="a fake module agrees with what its author believed",
        found=replaces_module,
        files=files_of_tests,
        bad="sys.modules['torch'] = fake",
        good="loaded = set(sys.modules)",
    ),
    Ban(
        name="sleeps",
        why="a test that sleeps is slow or flaky; wait for what must happen",
        found=sleeps,
        files=files_of_tests,
        bad="time.sleep(1)",
        good="event.wait(1)",
    ),
]


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_the_pattern_does_not_appear(ban: Ban):
    excepted = exceptions("bans")
    found = [
        f"{file.name}:{node.lineno}"
        for file in ban.files()
        if f"{ban.name} {file.name}" not in excepted
        for node in file.nodes()
        if ban.found(node)
    ]
    assert not found, ban.why


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_a_ban_finds_what_it_bans_and_nothing_else(ban: Ban):
    assert any(map(ban.found, ast.walk(ast.parse(ban.bad))))
    assert not any(map(ban.found, ast.walk(ast.parse(ban.good))))


def test_exceptions_are_still_needed():
    needed = {
        f"{ban.name} {file.name}"
        for ban in BANS
        for file in ban.files()
        if any(map(ban.found, file.nodes()))
    }
    assert exceptions("bans").keys() <= needed
