"""What the doctor knows of logins, versions and machines."""

from __future__ import annotations

import json

import pytest
from test_console_cli import relax_tui

from relax_tui.machine_checks import known_troubles, release
from relax_tui.survival import survives_logout

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
OWN_SCOPE = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n"


@pytest.mark.parametrize(
    ("cgroup", "kills", "lingers", "dies"),
    [
        (SESSION, True, False, True),
        (SESSION, False, False, False),
        (OWN_SCOPE, True, True, False),
        (OWN_SCOPE, True, False, True),
        ("0::/\n", True, False, False),
        ("4:memory:/docker/abc\n", True, False, False),
    ],
)
def test_what_a_logout_ends(cgroup, kills, lingers, dies):
    survival = survives_logout(cgroup=cgroup, kills=kills, lingers=lingers)
    assert survival.dies is dies
    assert bool(survival.remedy) is dies


def whats(versions):
    return " / ".join(trouble.what for trouble in known_troubles(versions))


def test_versions_that_do_not_go_together():
    assert "kernels 0.14.0" in whats({"sglang": "0.5.11", "kernels": "0.14.0"})
    assert "kernels" not in whats({"sglang": "0.5.23", "kernels": "0.14.0"})
    assert "one environment" in whats({"sglang": "0.5.23", "megatron-core": "0.16.1"})
    assert "ray 2.9" in whats({"ray": "2.9.3"})
    assert "transformer-engine" in whats({"transformer-engine": "1.13.0"})
    assert "ray" not in whats({"ray": "2.60.0", "torch": "2.13.0"})


def test_memory_that_cannot_be_released(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "expandable_segments" in whats({})


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.5.11", (0, 5, 11)),
        ("2.13.0+cu130", (2, 13, 0)),
        ("1.0rc1", (1, 0)),
        ("x", ()),
    ],
)
def test_releases(version, numbers):
    assert release(version) == numbers


def test_the_command(tmp_path):
    assert "after logout" in relax_tui("doctor", tmp_path=tmp_path).stdout
    said = json.loads(relax_tui("doctor", "--json", tmp_path=tmp_path).stdout)
    assert said["logout"]["why"]
