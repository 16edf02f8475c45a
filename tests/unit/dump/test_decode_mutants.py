"""A thousand damaged and hostile dumps: a sentence each, and nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from foreign_dumps import (
    Ranks,
    make_truth,
    rollout_sample,
    save_relax_train,
    save_rollout,
    save_v1_train,
    save_v2_train,
)

from relax.dump.write import write_rollout_dump

COUNT = 1000


def save_seeds(folder: Path) -> None:
    truth = make_truth(3, longest=20)
    save_rollout(folder / "relax.pt", truth)
    save_relax_train(folder / "relax", truth, Ranks())[0].rename(folder / "train.pt")
    save_v1_train(folder / "v1", truth, Ranks(), qkv_format="thd")[0].rename(
        folder / "v1.pt"
    )
    save_v2_train(folder / "v2.pt", truth)
    # Large enough to be read sample by sample.
    many = [rollout_sample(one) for one in make_truth(200, longest=200)]
    write_rollout_dump(folder / "ours.pt", many, rollout_id=3)
    for empty in ("relax", "v1"):
        (folder / empty).rmdir()


def test_a_thousand_mutants(tmp_path):
    save_seeds(tmp_path / "seeds")
    program = Path(__file__).with_name("mutants.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(COUNT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    *outcomes, last = lines
    assert len(outcomes) == COUNT
    for outcome in outcomes:
        if "error" in outcome:
            sentence = outcome["what"]
            assert "\n" not in sentence, outcome
            assert len(sentence) < 600, outcome
    # The decoder's own libraries take about 100 MiB.
    assert last["peak_mib"] < 700
    assert not (tmp_path / "canary").exists()
    kinds = Counter(outcome.get("error", "read") for outcome in outcomes)
    # Every end is met often enough to say that it was tried.
    assert kinds["dump-truncated"] > 100
    assert kinds["dump-refused"] > 30
    assert kinds["dump"] > 100
    assert kinds["read"] > 30
