"""The rollout runner's half imports no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = (
    "relax.backends.rollout",
    "relax.engine.rollout.context",
    "relax.engine.rollout.data_source",
    "relax.engine.rollout.sample",
    "relax.engine.rollout.sglang_rollout",
    "relax.engine.rollout.vocabulary",
    "relax.engine.rewards.pool",
    "relax.engine.rewards.worker",
)


@pytest.mark.parametrize("heavy", ["torch", "transformers", "ray", "megatron"])
def test_no_heavy_package_is_imported(heavy):
    program = f"import sys, {', '.join(MODULES)}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
