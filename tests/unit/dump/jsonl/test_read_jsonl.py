"""JSONL of the engines as step records; what a file lacks stays absent."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from relax.dump.jsonl.read import look_at_jsonl, read_jsonl
from relax.errors import DumpError, DumpMissing
from relax.records.open import StepRecord
from relax.records.schema import StageFile


def written(path, objects):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in objects))
    return path


def table(decoded, stage=StageFile.SAMPLES):
    return StepRecord.at(decoded.folder, rollout_id=decoded.rollout_id).table(stage)


def relax_line(index, **more):
    return {
        "rollout_id": 3,
        "sample_index": index,
        "prompt": "1 + 1 = ?",
        "response": "2",
        "reward": 1.0,
        "response_length": 2,
        "total_length": 9,
        "status": "completed",
        "group_index": index // 2,
        **more,
    }


def test_relax_without_token_ids(tmp_path):
    path = written(tmp_path / "train" / "3.jsonl", [relax_line(i) for i in range(4)])
    decoded = read_jsonl([path], tmp_path / "out")
    rows = table(decoded)
    assert decoded.source_format == "Relax rollout JSONL"
    assert decoded.rollout_id == 3
    assert rows.column("group_index").to_pylist() == [0, 0, 1, 1]
    assert rows.column("prompt_length").to_pylist() == [7] * 4
    assert rows.column("tokens").null_count == 4
    assert rows.column("loss_mask").null_count == 4
    assert decoded.stages == ("samples",)


def test_relax_with_token_ids_and_log_probs(tmp_path):
    line = relax_line(
        0, response_token_ids=[5, 6], response_rollout_log_probs=[-0.5, None]
    )
    rows = table(read_jsonl([written(tmp_path / "3.jsonl", [line])], tmp_path / "out"))
    assert rows.column("tokens")[0].as_py() == [5, 6]
    first, second = rows.column("rollout_log_probs")[0].as_py()
    assert first == -0.5
    assert math.isnan(second), "null is how JSON writes what is not finite"
    assert rows.column("total_length")[0].as_py() == 2


def test_verl_has_text_only(tmp_path):
    lines = [
        {"input": f"q{i // 2}", "output": "a", "gts": "a", "score": float(i), "step": 7}
        for i in range(4)
    ]
    decoded = read_jsonl([written(tmp_path / "7.jsonl", lines)], tmp_path / "out")
    rows = table(decoded)
    assert decoded.rollout_id == 7
    assert rows.column("reward").to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert rows.column("group_index").to_pylist() == [0, 0, 1, 1]
    assert rows.column("response_length").to_pylist() == [-1] * 4
    assert any("text only" in note for note in decoded.notes)


def prime_line(**more):
    return {
        "schema_version": 1,
        "token_ids": [1, 2, 3, 4, 1, 5, 6],
        "position_ids": [0, 1, 2, 3, 0, 1, 2],
        "loss_mask": [False, False, True, True, False, True, True],
        "trainer_logprobs": [0, 0, -0.1, -0.2, 0, -0.3, None],
        "inference_logprobs": [0, 0, -0.1, -0.2, 0, -0.3, -0.4],
        "entropy": [0, 0, 0.3, 0.3, 0, 0.3, 0.3],
        **more,
    }


def test_prime_rl_packs_sequences(tmp_path):
    path = written(tmp_path / "step_5" / "rank_0.jsonl", [prime_line()])
    decoded = read_jsonl([path], tmp_path / "out")
    rows, scores = table(decoded), table(decoded, StageFile.LOGPROBS)
    assert decoded.rollout_id == 5
    assert rows.column("tokens").to_pylist() == [[1, 2, 3, 4], [1, 5, 6]]
    assert rows.column("response_length").to_pylist() == [2, 2]
    np.testing.assert_allclose(scores.column("log_probs")[0].as_py(), [-0.1, -0.2])
    assert math.isnan(scores.column("log_probs")[1].as_py()[1])
    assert scores.column("num_nonfinite").to_pylist() == [0, 1]
    assert scores.column("ref_log_probs").null_count == 2


def test_prime_rl_ranks_of_one_step(tmp_path):
    paths = [
        written(tmp_path / "step_5" / f"rank_{rank}.jsonl", [prime_line()])
        for rank in range(2)
    ]
    assert read_jsonl(paths, tmp_path / "out").num_samples == 4
    other = written(tmp_path / "step_6" / "rank_0.jsonl", [prime_line()])
    with pytest.raises(DumpError, match="different steps"):
        read_jsonl([paths[0], other], tmp_path / "other")


def test_nemo_rl_rows_are_padded(tmp_path):
    line = {
        "content": "user: 2? assistant: 4",
        "rewards": 1.0,
        "input_lengths": 4,
        "token_ids": [1, 2, 3, 4, 0, 0],
        "token_loss_mask": [0, 0, 1, 1, 0, 0],
        "sample_loss_mask": 1.0,
        "advantages": [0.0, 0.0, 0.7, 0.7, 0.0, 0.0],
        "generation_logprobs": [0.0, 0.0, -0.5, -0.6, 0.0, 0.0],
        "prev_logprobs": [0.0, 0.0, -0.5, -0.7, 0.0, 0.0],
    }
    path = written(tmp_path / "train_data_step12.jsonl", [line])
    decoded = read_jsonl([path], tmp_path / "out")
    rows, scores = table(decoded), table(decoded, StageFile.LOGPROBS)
    assert decoded.rollout_id == 12
    assert rows.column("tokens")[0].as_py() == [1, 2, 3, 4]
    assert rows.column("loss_mask")[0].as_py() == [1, 1]
    np.testing.assert_allclose(scores.column("log_probs")[0].as_py(), [-0.5, -0.7])
    assert scores.column("rollout_max_abs")[0].as_py() == pytest.approx(0.1, rel=1e-5)


def test_a_line_that_is_cut_short_is_told(tmp_path):
    path = written(tmp_path / "3.jsonl", [relax_line(0)])
    with path.open("a") as stream:
        stream.write('{"rollout_id": 3, "pro')
    decoded = read_jsonl([path], tmp_path / "out")
    assert decoded.num_samples == 1
    assert any("no JSON (2)" in note for note in decoded.notes)


@pytest.mark.parametrize("text", ['{"a": 1}\n', "[1]\n", "", "\x00\x01", "not json\n"])
def test_other_files_are_not_taken(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    assert look_at_jsonl(path) is None
    with pytest.raises(DumpError):
        read_jsonl([path], tmp_path / "out")


def test_no_file(tmp_path):
    with pytest.raises(DumpMissing):
        read_jsonl([tmp_path / "none.jsonl"], tmp_path / "out")
