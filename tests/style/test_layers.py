"""Who may import whom, where import-linter cannot say it (see pyproject.toml)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from own_files import ROOT, SourceFile, product_files

HEAVY = ("torch", "ray", "megatron", "sglang", "transformers", "safetensors")
LIGHT = (
    "relax/__init__.py",
    "relax/errors.py",
    "relax/arguments",
    "relax/records",
    "relax/events",
    "relax/measure",
    "relax/triage",
    "relax/control",
    "relax/dump",
    "relax_tui",
)
PURE = {
    "relax/controller/machine.py": {
        "relax.controller.errands",
        "relax.controller.refusals",
        "relax.controller.state",
        "relax.errors",
        "relax.events.types",
    },
    "relax/controller/refusals.py": {
        "relax.controller.errands",
        "relax.controller.state",
        "relax.events.types",
    },
    "relax/controller/errands.py": {
        "relax.control.orders",
        "relax.controller.modes",
        "relax.controller.state",
        "relax.errors",
        "relax.events.types",
    },
    "relax/controller/modes.py": {"relax.arguments", "relax.events.types"},
    "relax/controller/state.py": {"relax.control.orders", "relax.events.types"},
    "relax/control/orders.py": {"relax.events.types"},
}
FORBIDDEN_TO_PURE = {
    "asyncio",
    "os",
    "pathlib",
    "random",
    "socket",
    "threading",
    "time",
}
PARALLEL_DOOR = "relax/backends/megatron/parallel.py"


def module_name(file: SourceFile) -> str:
    return file.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(file: SourceFile) -> Iterator[str]:
    for node in file.nodes():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_light_modules_load_nothing_heavy():
    """As a head node or a laptop without the engine's packages would load them."""
    light = [module_name(f) for f in product_files() if f.is_in(*LIGHT)]
    program = (
        "import importlib, json, sys\n"
        f"for name in {light!r}: importlib.import_module(name)\n"
        f"print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("package", ["relax", "relax_tui", "relax_tui.cli"])
def test_importing_a_package_costs_nothing(package):
    costly = (*HEAVY, "numpy", "pyarrow", "pydantic", "aiohttp", "textual")
    program = (
        f"import sys, {package}\nprint([n for n in {costly!r} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", PURE)
def test_the_machine_is_pure(name):
    (file,) = [f for f in product_files() if f.name == name]
    modules = set(imported(file))
    assert not modules & FORBIDDEN_TO_PURE
    froms = {n.module for n in file.nodes() if isinstance(n, ast.ImportFrom)}
    assert {m for m in froms if m.startswith("relax")} <= PURE[name]
    outside = {m.split(".")[0] for m in modules} - {"relax"} - sys.stdlib_module_names
    assert not outside


def test_parallel_state_has_one_door():
    users = [
        file.name
        for file in product_files()
        if file.name != PARALLEL_DOOR
        and any(m.startswith("megatron.core.parallel_state") for m in imported(file))
    ]
    assert not users
