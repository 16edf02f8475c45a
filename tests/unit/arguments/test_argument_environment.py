import subprocess
import sys
from pathlib import Path

import pytest

from relax.arguments import environment, parse_arguments, passthrough
from relax.errors import ArgumentError

FAKE_PYTHON = """#!/bin/sh
if [ "$2" = -c ]; then echo 99.1; exit 0; fi
echo asked >> COUNTER
cat <<'END'
a greeting
{
"version": "99.1", "fields": [{"name": "sglang_new_thing", "configs": ["sglang"],
"default": null, "optional": true, "choices": [], "accepts": [], "refused": false,
"base": "int"}]}
END
"""
HEAVY = ("torch", "ray", "megatron", "sglang", "transformers")


def test_nothing_heavy_is_imported(words):
    program = (
        "import sys\n"
        "from relax.arguments import asked_text, check_hooks, parse_arguments\n"
        "import relax.arguments.describe\n"
        "parse_arguments(sys.argv[1:]).digest()\n"
        "asked_text(['--help'])\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program, *words()],
        env=environment.child_environment(
            {"PYTHONPATH": environment.child_python_path()}
        ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr


def test_the_environment_alone_is_cheap():
    program = (
        "import sys, relax.arguments.environment\n"
        "sys.exit(int('yaml' in sys.modules or 'relax.arguments.flags' in sys.modules))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=environment.child_environment(
            {"PYTHONPATH": environment.child_python_path()}
        ),
        timeout=60,
    )
    assert finished.returncode == 0


def test_folders_follow_xdg(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert environment.state_home() == Path("/somewhere/state")
    assert environment.cache_home() == environment.home() / ".cache"
    assert environment.runtime_dir() == Path("/run/user/7/relax")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert environment.runtime_dir().name.startswith("relax-")


def test_worker_environment():
    cpu = environment.worker_environment(threads=3, has_gpu=False)
    assert cpu["OMP_NUM_THREADS"] == "3"
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    gpu = environment.worker_environment(threads=1, has_gpu=True, deterministic=True)
    assert gpu["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in gpu
    assert gpu["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] == "0"


def test_terminal_environment_keeps_empty_variables(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.delenv("TMUX", raising=False)
    terminal = environment.terminal_environment()
    assert terminal["NO_COLOR"] == ""
    assert "TMUX" not in terminal


def test_an_interpreter_is_asked_once_and_then_remembered(tmp_path, monkeypatch):
    """An interpreter with a library of an untested version, told by a script."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    counter = tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON.replace("COUNTER", str(counter)))
    python.chmod(0o755)
    for _ in range(2):
        fields = passthrough.library_fields("sglang", python=python)
        assert fields is not None
        assert [entry["name"] for entry in fields] == ["sglang_new_thing"]
    assert counter.read_text().count("asked") == 1
    table = passthrough.flag_table(sglang_python=python)
    assert table.find("sglang_new_thing") is not None
    assert table.find("sglang_newer_thing") is None


def test_sglang_names_are_held_against_the_serving_interpreter(
    tmp_path, words, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON.replace("COUNTER", str(tmp_path / "asked")))
    python.chmod(0o755)
    base = f"--rollout-backend sglang --sglang-python {python} "
    settings = parse_arguments(words(base + "--sglang-new-thing 3")).rollout.sglang
    assert settings == {"new_thing": 3}
    with pytest.raises(ArgumentError, match="--sglang-new-thing"):
        parse_arguments(words(base + "--sglang-new-thin 3"))


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 3\n"])
def test_an_interpreter_that_does_not_run_is_named(tmp_path, content):
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    with pytest.raises(ArgumentError, match=str(python)):
        passthrough.library_fields("sglang", python=python)


@pytest.mark.engine
def test_the_stored_table_is_what_megatron_core_says():
    version = passthrough.installed_version("megatron-core")
    table = passthrough.TABLES / f"megatron-core-{version}.json"
    if version is None or not table.is_file():
        pytest.skip(f"no stored table for megatron-core {version}")
    finished = subprocess.run(
        [sys.executable, "-P", str(passthrough.DESCRIBER), "megatron-core"],
        env=environment.child_environment({"OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.stdout.endswith(table.read_text())
