"""``--walk`` stops at the stage that shows a fault, before any optimizer step."""

from __future__ import annotations

import json
import shutil

import pytest
from safetensors.numpy import load_file, save_file

from relax.events.types import Paused, Stage, TrainStep, VerdictGiven
from tests.process.runs import ROOT, started

pytestmark = pytest.mark.engine
MODEL = ROOT / "examples" / "tiny_arith" / "model"


def changed_model(folder, change):
    shutil.copytree(MODEL, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def walk_to(run, stage):
    """Continues until the walk stops after a stage; the verdicts given so far."""
    while run.of(Paused)[-1].after is not stage:
        count = len(run.of(Paused))
        run.go_on()
        run.wait_for(Paused, count=count + 1)
    return {v.verdict["rule"]: v.verdict for v in run.of(VerdictGiven)}


def test_a_healthy_run_passes_every_check_that_is_due(tmp_path):
    with started(tmp_path / "run", "--num-rollout", "1", "--walk") as run:
        run.wait_for(Paused)
        verdicts = walk_to(run, Stage.ADVANTAGES)
        assert {v["status"] for v in verdicts.values()} == {"PASS"}, verdicts
        assert not run.of(TrainStep)
        verdicts = walk_to(run, Stage.TRAIN)
        assert verdicts["grad_norm"]["status"] == "PASS"
        whys = {paused.why for paused in run.of(Paused)}
        assert whys == {"walk"}
        run.go_on()
        assert run.end() == 0


def test_a_reference_with_one_changed_tensor_fails_before_the_train_step(tmp_path):
    def change(tensors):
        tensors["model.layers.1.mlp.down_proj.weight"][3, 5] += 0.01

    reference = changed_model(tmp_path / "reference", change)
    flags = ("--num-rollout", "1", "--walk", "--ref-load", str(reference))
    with started(tmp_path / "run", *flags) as run:
        run.wait_for(Paused)
        verdicts = walk_to(run, Stage.ADVANTAGES)
        assert verdicts["log_probs_equal_ref"]["status"] == "FAIL"
        assert verdicts["log_probs_equal_ref"]["numbers"]["unequal"] > 0
        assert verdicts["responses_coherent"]["status"] == "PASS"
        assert not run.of(TrainStep)


def test_a_garbled_checkpoint_fails_after_generate(tmp_path):
    def change(tensors):
        for name, tensor in tensors.items():
            if name.endswith("o_proj.weight") or "down_proj" in name:
                tensor[:] = tensor[::-1]

    garbled = changed_model(tmp_path / "garbled", change)
    json.loads((garbled / "config.json").read_text())
    model = ("--hf-checkpoint", str(garbled), "--ref-load", str(garbled))
    with started(tmp_path / "run", "--num-rollout", "1", "--walk", *model) as run:
        run.wait_for(Paused)
        verdicts = walk_to(run, Stage.GENERATE)
        assert verdicts["responses_coherent"]["status"] == "FAIL", verdicts
        assert run.of(Paused)[-1].after is Stage.GENERATE
        assert not run.of(TrainStep)
