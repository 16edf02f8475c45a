"""Train dumps of every layout come out as the one truth they were made from."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from foreign_dumps import (
    Ranks,
    assert_is_truth,
    decode_in_process,
    make_truth,
    save,
    save_relax_train,
    save_rollout,
    save_v1_train,
    save_v2_train,
    stage,
)

from relax.errors import DumpError, DumpTooNew

LAYOUTS = [
    Ranks(),
    Ranks(dp=2),
    Ranks(tp=2),
    Ranks(pp=2),
    Ranks(cp=2),
    Ranks(cp=4),
    Ranks(tp=2, cp=2),
    Ranks(cp=2, dp=2),
    Ranks(tp=2, cp=2, dp=2, pp=2),
]


def name_of(ranks):
    return f"tp{ranks.tp}-cp{ranks.cp}-dp{ranks.dp}-pp{ranks.pp}"


@pytest.mark.parametrize("ranks", LAYOUTS, ids=name_of)
@pytest.mark.parametrize("writer", ["relax", "slime v1", "miles"])
def test_ranks_are_joined(tmp_path, writer, ranks):
    truth = make_truth()
    if writer == "relax":
        paths = save_relax_train(tmp_path / "dump", truth, ranks)
    else:
        extra = {"qkv_format": "thd"} if writer == "miles" else {}
        paths = save_v1_train(tmp_path / "dump", truth, ranks, **extra)
    decoded = decode_in_process(paths, tmp_path / "out")
    assert_is_truth(decoded, truth)
    assert decoded.kind == "train"
    assert decoded.coverage["ranks"] == list(range(ranks.world))
    assert decoded.coverage["partitions"] == ranks.dp
    assert decoded.coverage.get("context_parallel", 1) == ranks.cp
    without = decoded.coverage.get("ranks_without_log_probs", [])
    assert len(without) == ranks.world - ranks.world // ranks.pp
    assert not decoded.notes


def test_slime_v2_is_read(tmp_path):
    truth = make_truth()
    decoded = decode_in_process(save_v2_train(tmp_path / "3.pt", truth), tmp_path / "o")
    assert_is_truth(decoded, truth)
    assert decoded.source_format == "slime train v2"
    places = stage(decoded, "train")
    assert sorted(row["sample_index"] for row in places) == [t.index for t in truth]
    assert {(row["rank"], row["step_id"]) for row in places} == {
        (rank, step) for rank in (0, 1) for step in (0, 1)
    }


def test_a_newer_slime_is_refused(tmp_path):
    path = save(
        tmp_path / "3.pt",
        {"format_version": 3, "rollout_id": 0, "rank": 0, "samples": []},
    )
    with pytest.raises(DumpTooNew, match="format 3"):
        decode_in_process([path], tmp_path / "out")


@pytest.mark.parametrize("indices", [True, False])
def test_rollout_and_train_dumps_share_their_rows(tmp_path, indices):
    truth = make_truth(12)
    paths = save_relax_train(tmp_path, truth, Ranks(dp=2), indices=indices)
    paths.append(save_rollout(tmp_path / "3.pt", truth))
    decoded = decode_in_process(paths, tmp_path / "out")
    assert decoded.kind == "rollout"
    assert_is_truth(decoded, truth)
    order = [row["sample_index"] for row in stage(decoded, "samples")]
    assert order == [one.index for one in truth]
    assert order == [row["sample_index"] for row in stage(decoded, "logprobs")]


def test_samples_that_no_file_trained_are_not_carried(tmp_path):
    truth = make_truth(12)
    paths = save_relax_train(tmp_path, truth, Ranks(dp=2))
    decoded = decode_in_process(
        [save_rollout(tmp_path / "3.pt", truth), paths[1]], tmp_path / "out"
    )
    rows = stage(decoded, "logprobs")
    assert [row["tokens_kept"] for row in rows] == [False, True] * 6
    assert rows[0]["log_probs"] is None
    assert decoded.coverage["not_trained"] == 6
    assert any("6 of 12 samples" in note for note in decoded.notes)


def test_without_numbers_ranks_give_the_order(tmp_path):
    truth = make_truth()
    paths = save_relax_train(tmp_path, truth, Ranks(dp=2), indices=False)
    decoded = decode_in_process(paths, tmp_path / "out")
    rows = stage(decoded, "samples")
    assert [row["sample_index"] for row in rows] == list(range(8))
    assert rows[1]["tokens"] == truth[2].tokens
    assert any("no number of the whole run" in note for note in decoded.notes)


def test_copies_that_differ_are_named(tmp_path):
    truth = make_truth()
    paths = save_v1_train(tmp_path, truth, Ranks(tp=2))
    content = torch.load(paths[1], weights_only=False)
    content["rollout_data"]["log_probs"][2][1] += 0.25
    save(paths[1], content)
    decoded = decode_in_process(paths, tmp_path / "out")
    (note,) = decoded.notes
    assert re.match(r"log_probs of rank 1 is not that of rank 0", note)
    assert "1 tokens differ, by up to 0.25" in note
    assert_is_truth(decoded, truth)


def test_a_missing_piece_is_not_filled_up(tmp_path):
    truth = make_truth()
    paths = save_v1_train(tmp_path, truth, Ranks(cp=2), qkv_format="thd")
    decoded = decode_in_process(paths[:1], tmp_path / "out")
    rows = stage(decoded, "logprobs")
    assert all(row["tokens_kept"] for row in rows)
    # A response may lie in the chunks of one rank alone.
    missing = [row["log_probs"] is None for row in rows]
    assert any(missing)
    assert any("context-parallel rank 1 of 2 is not here" in n for n in decoded.notes)


def test_padded_batches_are_cut_by_their_padded_length(tmp_path):
    (one,) = make_truth(1)
    padded = one.total + 16 - one.total % 16
    prompt, chunk = one.total - one.response, padded // 4
    column = one.columns["log_probs"]
    paths = []
    for cp_rank in (0, 1):
        held = [
            place + 1 - prompt
            for number in (cp_rank, 3 - cp_rank)
            for place in range(number * chunk, (number + 1) * chunk)
            if 0 <= place + 1 - prompt < one.response
        ]
        data = {
            "tokens": [torch.tensor(one.tokens)],
            "total_lengths": [one.total],
            "response_lengths": [one.response],
            "max_seq_lens": [padded],
            "log_probs": [torch.tensor(column[held])],
        }
        content = {
            "rollout_id": 3,
            "rank": cp_rank,
            "rollout_data": data,
            "cp_rank": cp_rank,
            "cp_size": 2,
            "qkv_format": "bshd",
        }
        paths.append(save(tmp_path / f"3_{cp_rank}.pt", content))
    decoded = decode_in_process(paths, tmp_path / "out")
    assert stage(decoded, "logprobs")[0]["log_probs"] == column.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_float_dtype_is_read(tmp_path, dtype):
    truth = make_truth(2)
    (path,) = save_v1_train(tmp_path, truth, Ranks())
    content = torch.load(path, weights_only=False)
    data = content["rollout_data"]
    data["log_probs"] = [column.to(dtype) for column in data["log_probs"]]
    # Views: of a shared storage, with an offset, and with a stride of 0.
    joint = torch.cat(data["entropy"])
    data["entropy"] = list(joint.split([one.response for one in truth]))
    data["advantages"] = [torch.tensor(0.5).expand(one.response) for one in truth]
    save(path, content)
    decoded = decode_in_process([path], tmp_path / "out")
    for one, row in zip(truth, stage(decoded, "logprobs"), strict=True):
        wanted = torch.tensor(one.columns["log_probs"]).to(dtype).float()
        assert row["log_probs"] == wanted.tolist()
        assert row["entropy"] == one.columns["entropy"].tolist()
        assert row["advantages"] == np.full(one.response, 0.5).tolist()


def test_absent_masked_zero_and_nonfinite_stay_different(tmp_path):
    (path,) = save_v1_train(tmp_path, make_truth(2), Ranks())
    content = torch.load(path, weights_only=False)
    data = content["rollout_data"]
    data["loss_masks"][0][:] = 1
    data["loss_masks"][0][1] = 0
    data["log_probs"][0][:3] = torch.tensor([0.0, 5.0, float("nan")])
    data["log_probs"][1] = None
    del data["entropy"]
    save(path, content)
    first, second = stage(decode_in_process([path], tmp_path / "out"), "logprobs")
    assert first["log_probs"][:2] == [0.0, 5.0]
    assert np.isnan(first["log_probs"][2])
    assert first["num_nonfinite"] == 1
    assert first["rollout_max_position"] != 1
    assert second["log_probs"] is None
    assert first["entropy"] is None


def test_files_of_two_steps_are_refused(tmp_path):
    truth = make_truth(2)
    (one,) = save_v1_train(tmp_path / "a", truth, Ranks())
    (two,) = save_v1_train(tmp_path / "b", truth, Ranks())
    content = torch.load(two, weights_only=False)
    save(two, {**content, "rollout_id": 4, "rank": 1})
    with pytest.raises(DumpError, match="different rollouts: 3"):
        decode_in_process([one, two], tmp_path / "out")
