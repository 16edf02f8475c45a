"""The project's own Python files, parsed once, and the limits' exceptions."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("relax", "relax_tui", "examples", "tests")


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file; ``name`` is its path from the top folder."""

    name: str
    text: str
    tree: ast.Module

    @property
    def num_lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    def is_in(self, *folders: str) -> bool:
        """Whether the file is, or lies under, one of these paths."""
        return any(self.name == f or self.name.startswith(f"{f}/") for f in folders)

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of the tree."""
        return ast.walk(self.tree)


@functools.cache
def source_files() -> tuple[SourceFile, ...]:
    """All files, in order of their names."""
    paths = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
    texts = [(path, path.read_text(encoding="utf-8")) for path in paths]
    return tuple(
        SourceFile(
            name=str(path.relative_to(ROOT)),
            text=text,
            tree=ast.parse(text, filename=str(path)),
        )
        for path, text in texts
    )


def product_files() -> tuple[SourceFile, ...]:
    """The files that are installed."""
    return tuple(f for f in source_files() if f.is_in("relax", "relax_tui"))


def files_of_tests() -> tuple[SourceFile, ...]:
    """The tests."""
    return tuple(f for f in source_files() if f.is_in("tests"))


@functools.cache
def exceptions(kind: str) -> dict[str, int]:
    """Reasoned exceptions from ``budgets.toml``: what is excepted, and up to where.

    Args:
        kind: A table of the file, e.g. ``file_lines``.

    Returns:
        ``{place: limit}``; the limit is 0 where a rule is simply off.

    Raises:
        ValueError: An exception has no reason.
    """
    budgets = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text())
    entries = budgets.get(kind, {})
    for place, entry in entries.items():
        if len(entry.get("reason", "").split()) < 3:
            raise ValueError(f"budgets.toml: {kind} {place} has no reason")
    return {place: entry.get("limit", 0) for place, entry in entries.items()}
