"""What SGLang needs on a machine without a GPU.

SGLang has a CPU engine, but its kernels' shared objects are linked against the CUDA
driver's library. Where there is none, a stand-in is built once, into the user's cache:
every driver function that they name, each answering CUDA_ERROR_NO_DEVICE.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from relax.arguments.environment import cache_home, child_environment
from relax.errors import EngineError

DRIVER: Final = "libcuda.so.1"
CPU_ARGUMENTS: Final[Mapping[str, Any]] = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_overlap_schedule": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 16_384,
}
"""Server arguments on a CPU, unless the user gives others."""

_NO_DEVICE: Final = 100
_FIND_KERNELS: Final = (
    "import importlib.util as u; s = u.find_spec('sgl_kernel');"
    "print(s.submodule_search_locations[0] if s else '')"
)


def cpu_environment(python: Path) -> dict[str, str]:
    """Environment variables with which SGLang runs without a GPU.

    Args:
        python: The interpreter that runs SGLang.

    Raises:
        EngineError: The driver's stand-in is needed and cannot be built.
    """
    changes = {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if not _has_driver():
        inherited = child_environment().get("LD_LIBRARY_PATH", "")
        folders = [str(driver_stub(python)), *filter(None, [inherited])]
        changes["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    return changes


def driver_stub(python: Path) -> Path:
    """Folder of a stand-in for the CUDA driver's library; built when missing."""
    kernels = _kernel_objects(python)
    key = hashlib.sha256(
        "\n".join(f"{path}:{path.stat().st_size}" for path in kernels).encode()
    ).hexdigest()[:16]
    folder = cache_home() / "relax" / f"cuda-driver-stub-{key}"
    if not (folder / DRIVER).is_file():
        _build(folder, sorted(_wanted_symbols(kernels)))
    return folder


def _has_driver() -> bool:
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def _kernel_objects(python: Path) -> list[Path]:
    # `-P`: the working directory is not where its modules come from.
    asked = subprocess.run(
        [str(python), "-P", "-c", _FIND_KERNELS],
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(),
    )
    place = asked.stdout.strip()
    return sorted(Path(place).rglob("*.so")) if place else []


def _wanted_symbols(kernels: list[Path]) -> set[str]:
    wanted: set[str] = set()
    for path in kernels:
        listed = _tool("nm", "-D", "--undefined-only", str(path))
        wanted |= set(re.findall(r"\bU (cu[A-Z]\w*)", listed))
    return wanted


def _build(folder: Path, symbols: list[str]) -> None:
    lines = [f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in symbols]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        source = Path(place) / "stub.c"
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        made = Path(place) / "lib"
        made.mkdir()
        _tool(
            *("gcc", "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}"),
            *("-o", str(made / DRIVER), str(source)),
        )
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster; what it built is the same.
            if not (folder / DRIVER).is_file():
                raise


def _tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise EngineError(
            f"SGLang on a machine without a GPU needs a stand-in for {DRIVER}, and "
            f"there is no {command[0]} to build it with",
            hint="install binutils and gcc, or use --rollout-backend embedded",
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(
            f"{command[0]} failed: {done.stderr.strip()[-300:]}",
            where=f"a stand-in for {DRIVER}",
        )
    return done.stdout
