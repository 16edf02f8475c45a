"""Dumps as Relax, slime and miles write them, by torch.save, from one truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from relax.dump.decode.messages import Decoded, DecodeRequest
from relax.dump.decode.process import decode_here

PER_TOKEN = (
    "log_probs",
    "ref_log_probs",
    "entropy",
    "advantages",
    "returns",
    "rollout_log_probs",
)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """One sample as it really was; arrays are float32 [R]."""

    index: int
    group: int
    tokens: list[int]
    response: int
    mask: list[int]
    reward: float
    columns: dict[str, np.ndarray]

    @property
    def total(self) -> int:
        return len(self.tokens)


def make_truth(count: int = 8, *, longest: int = 40, seed: int = 0) -> list[Truth]:
    draw = np.random.default_rng(seed)
    truth = []
    for number in range(count):
        response = int(draw.integers(6, longest))
        prompt = int(draw.integers(2, 12))
        truth.append(
            Truth(
                index=100 + number,
                group=number // 4,
                tokens=draw.integers(0, 90_000, prompt + response).tolist(),
                response=response,
                mask=draw.integers(0, 2, response).tolist(),
                reward=float(number % 2),
                columns={
                    name: draw.standard_normal(response).astype(np.float32)
                    for name in PER_TOKEN
                },
            )
        )
    return truth


def rollout_sample(truth: Truth, **changes: Any) -> dict[str, Any]:
    """``Sample.to_dict`` of upstream Relax."""
    return {
        "group_index": truth.group,
        "index": truth.index,
        "prompt": f"prompt {truth.group}",
        "tokens": truth.tokens,
        "rollout_tokens": truth.tokens,
        "multimodal_inputs": None,
        "response": "ok \ud800 déjà",
        "response_length": truth.response,
        "label": "7",
        "reward": truth.reward,
        "loss_mask": truth.mask,
        "weight_versions": ["3"],
        "rollout_log_probs": truth.columns["rollout_log_probs"].tolist(),
        "rollout_routed_experts": np.zeros((truth.total - 1, 2, 2), np.int32),
        "remove_sample": False,
        "abort_count": 0,
        "status": "completed",
        "metadata": {"stop_reason": "stop", "turns": [1, 2]},
        "session_id": f"s-{truth.index}",
        "spec_info": {"spec_verify_ct": 0},
        "decoded_tokens": [f"t{token}" for token in truth.tokens],
        **changes,
    }


def save(path: Path, content: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path, **options)
    return path


def save_rollout(path: Path, truth: list[Truth], **keys: Any) -> Path:
    samples = [rollout_sample(one) for one in truth]
    return save(path, {"rollout_id": 3, **keys, "samples": samples})


def pieces(column: np.ndarray, truth: Truth, cp_rank: int, cp_size: int) -> np.ndarray:
    """The zig-zag piece, marked out token by token rather than by spans."""
    chunk = -(-truth.total // (2 * cp_size))
    prompt = truth.total - truth.response
    parts = []
    for number in (cp_rank, 2 * cp_size - 1 - cp_rank):
        logits = range(number * chunk, (number + 1) * chunk)
        scored = [place + 1 - prompt for place in logits]
        parts += [j for j in scored if 0 <= j < truth.response]
    return column[parts]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A layout; tensor parallel varies fastest, then context, data, pipeline."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    def place(self, rank: int) -> tuple[int, int, bool]:
        """cp_rank, dp_rank, and whether the rank is in the last pipeline stage."""
        cp_rank = rank // self.tp % self.cp
        dp_rank = rank // (self.tp * self.cp) % self.dp
        return cp_rank, dp_rank, rank // (self.tp * self.cp * self.dp) == self.pp - 1


def rank_columns(truth: list[Truth], ranks: Ranks, rank: int) -> dict[str, list[Any]]:
    """What a rank holds after its train step, as numpy."""
    cp_rank, dp_rank, is_last = ranks.place(rank)
    mine = truth[dp_rank :: ranks.dp]
    columns: dict[str, list[Any]] = {
        "tokens": [np.array(one.tokens, np.int64) for one in mine],
        "loss_masks": [np.array(one.mask, np.int32) for one in mine],
        "total_lengths": [one.total for one in mine],
        "response_lengths": [one.response for one in mine],
        "rewards": [one.reward - 0.5 for one in mine],
        "raw_reward": [one.reward for one in mine],
        "sample_indices": [one.index for one in mine],
    }
    for name in PER_TOKEN if is_last else ("rollout_log_probs",):
        columns[name] = [
            pieces(one.columns[name], one, cp_rank, ranks.cp) for one in mine
        ]
    return columns


def save_relax_train(
    folder: Path, truth: list[Truth], ranks: Ranks, *, indices: bool = True
) -> list[Path]:
    """One file a rank: ``samples`` as dicts of lists; sample_index is rank-local."""
    paths = []
    for rank in range(ranks.world):
        columns = rank_columns(truth, ranks, rank)
        if not indices:
            del columns["sample_indices"]
        count = len(columns["tokens"])
        samples = [
            {
                "sample_index": place,
                **{name: _plain(column[place]) for name, column in columns.items()},
                "decoded_tokens": [f"t{t}" for t in columns["tokens"][place].tolist()],
            }
            for place in range(count)
        ]
        content = {"rollout_id": 3, "rank": rank, "samples": samples}
        paths.append(save(folder / f"3_{rank}.pt", content))
    return paths


def save_v1_train(
    folder: Path, truth: list[Truth], ranks: Ranks, **miles: Any
) -> list[Path]:
    """One file a rank: ``rollout_data`` as columns of tensors."""
    paths = []
    for rank in range(ranks.world):
        columns = rank_columns(truth, ranks, rank)
        data = {
            name: [torch.tensor(v) if isinstance(v, np.ndarray) else v for v in column]
            for name, column in columns.items()
        }
        content = {"rollout_id": 3, "rank": rank, "rollout_data": data}
        if miles:
            content |= {"cp_rank": ranks.place(rank)[0], "cp_size": ranks.cp, **miles}
        paths.append(save(folder / f"3_{rank}.pt", content))
    return paths


def save_v2_train(path: Path, truth: list[Truth], *, dp: int = 2) -> list[Path]:
    """One file a rollout, put together by its writer."""
    samples, shards = [], []
    for dp_rank in range(dp):
        mine = truth[dp_rank::dp]
        for one in mine:
            samples.append(
                {
                    "data_parallel_rank": dp_rank,
                    "sample_index": one.index,
                    "rollout_position": truth.index(one),
                    "tokens": torch.tensor(one.tokens),
                    "loss_masks": torch.tensor(one.mask, dtype=torch.int32),
                    "total_lengths": one.total,
                    "response_lengths": one.response,
                    "rewards": one.reward - 0.5,
                    "truncated": 0,
                    **{n: torch.tensor(one.columns[n]) for n in PER_TOKEN},
                }
            )
        half = len(mine) // 2
        shards.append(
            {
                "rank": dp_rank,
                "data_parallel_rank": dp_rank,
                "micro_batch_indices": [
                    list(range(half)),
                    list(range(half, len(mine))),
                ],
                "num_microbatches": [1, 1],
            }
        )
    content = {
        "format_version": 2,
        "rollout_id": 3,
        "rank": 0,
        "samples": sorted(samples, key=lambda s: s["rollout_position"]),
        "dp_shards": shards,
        "raw_reward": [one.reward for one in truth],
    }
    return [save(path, content)]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def decode_in_process(
    paths: list[Path], into: Path, *, reward_key: str | None = None
) -> Decoded:
    """Without the process and its limits, for speed."""
    into.mkdir(parents=True)
    request = DecodeRequest(
        paths=tuple(map(str, paths)),
        into=str(into),
        reward_key=reward_key,
        max_memory=1 << 30,
        time_limit=None,
    )
    return decode_here(request, lambda _: None)


def stage(decoded: Decoded, name: str) -> list[dict[str, Any]]:
    with pa.OSFile(str(decoded.folder / f"{name}.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def assert_is_truth(decoded: Decoded, truth: list[Truth]) -> None:
    """Every row and column is the truth, bit for bit."""
    samples = {row["sample_index"]: row for row in stage(decoded, "samples")}
    logprobs = {row["sample_index"]: row for row in stage(decoded, "logprobs")}
    assert samples.keys() == logprobs.keys() == {one.index for one in truth}
    for one in truth:
        row, scores = samples[one.index], logprobs[one.index]
        assert row["tokens"] == one.tokens
        assert row["loss_mask"] == one.mask
        assert row["reward"] == one.reward
        assert scores["normalized_reward"] == one.reward - 0.5
        for name, column in one.columns.items():
            found = (row if name == "rollout_log_probs" else scores)[name]
            assert found == column.tolist(), name
