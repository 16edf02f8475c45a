"""A batch of requests that are decoded together.

Rows are padded on the left, so all end at the same column:

    pad pad  What is 2+2?   4 <eos>
         Add 17 and 25.     4 2        S columns, the last one newest

    B rows, S columns so far, L longest allowed response, V vocabulary

`sample` takes one token for each row and says which rows ended; `compact` drops those;
`join` adds rows that were prefilled meanwhile; `advance` runs the model for one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache

from relax.backends.embedded.cache import join_rows, new_cache, select_rows
from relax.backends.embedded.model import LoadedModel
from relax.backends.embedded.sampling import draw_uniforms, sample_tokens
from relax.backends.embedded.stopping import StopText
from relax.backends.rollout import (
    CONTEXT,
    EOS,
    LENGTH,
    STOP_STRING,
    STOP_TOKEN,
    Finish,
    GenerateRequest,
)

NO_TOKEN = -1
"""Fills the ragged ends of ``stop_ids``; no token has this id."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One request in the batch.

    Attributes:
        request: As it came.
        limit: Longest response that its own limit and the context allow.
        ticket: The engine's; handed back untouched.
        stop_text: Looks for its stop texts; None when it has none.
    """

    request: GenerateRequest
    limit: int
    ticket: Any
    stop_text: StopText | None


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a row has so far.

    Attributes:
        output_ids: R token ids.
        log_probs: float32 [R].
    """

    row: Row
    output_ids: tuple[int, ...]
    log_probs: NDArray[np.float32]
    finish: Finish
    stop_reason: str


@dataclass(kw_only=True)
class _Columns:
    """Per-row state as tensors, B first; some [B, L]."""

    mask: Tensor
    position: Tensor
    steps: Tensor
    limit: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    stop_ids: Tensor
    uniforms: Tensor
    ids: Tensor
    log_probs: Tensor
    logits: Tensor
    done: Tensor

    def select(self, rows: Tensor, *, skip: int) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name)[rows])
        self.mask = self.mask[:, skip:]

    def join(self, other: _Columns) -> None:
        self.mask, other.mask = _widen(self.mask, other.mask, left=True, fill=0)
        self.stop_ids, other.stop_ids = _widen(
            self.stop_ids, other.stop_ids, left=False, fill=NO_TOKEN
        )
        for name in ("uniforms", "ids", "log_probs"):
            both = _widen(getattr(self, name), getattr(other, name), left=False, fill=0)
            setattr(self, name, both[0])
            setattr(other, name, both[1])
        for item in fields(self):
            both = (getattr(self, item.name), getattr(other, item.name))
            setattr(self, item.name, torch.cat(both))


class DecodeBatch:
    """Requests being decoded together by one model."""

    def __init__(
        self, model: LoadedModel, rows: list[Row], *, columns: _Columns, cache: Cache
    ) -> None:
        self._model = model
        self._rows = rows
        self._columns = columns
        self._cache = cache

    @classmethod
    @torch.inference_mode()
    def prefill(cls, model: LoadedModel, rows: Sequence[Row]) -> Self:
        """Run the prompts of ``rows``, at least one, through the model."""
        prompts = [torch.tensor(row.request.input_ids) for row in rows]
        width = max(len(prompt) for prompt in prompts)
        ids = torch.stack([pad(p, (width - len(p), 0)) for p in prompts])
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = (torch.arange(width) >= width - lengths[:, None]).long()
        cache = new_cache(model.module.config.num_hidden_layers)
        logits = model.next_logits(
            ids, mask=mask, positions=(mask.cumsum(1) - 1).clamp(min=0), cache=cache
        )
        columns = _new_columns(rows, mask=mask, logits=logits, eos_ids=model.eos_ids)
        return cls(model, list(rows), columns=columns, cache=cache)

    @property
    def num_live(self) -> int:
        """Rows that have not ended."""
        return len(self._rows) - int(self._columns.done.sum())

    @property
    def num_rows(self) -> int:
        """Rows that are computed, ended ones included."""
        return len(self._rows)

    @torch.inference_mode()
    def sample(self) -> list[Response]:
        """Take the next token of every row; returns the rows that it ended."""
        columns = self._columns
        at = torch.minimum(columns.steps, columns.limit - 1)[:, None]
        tokens, log_probs = sample_tokens(
            columns.logits,
            temperature_B=columns.temperature,
            top_p_B=columns.top_p,
            top_k_B=columns.top_k,
            uniform_B=columns.uniforms.gather(1, at).squeeze(1),
        )
        # A row that ended goes on being computed until it is dropped; what it would
        # write is lost, its response has been read already.
        columns.ids.scatter_(1, at, tokens[:, None])
        columns.log_probs.scatter_(1, at, log_probs[:, None])
        columns.steps = columns.steps + 1
        hit = (tokens[:, None] == columns.stop_ids).any(1)
        ended = (hit | (columns.steps >= columns.limit)) & ~columns.done
        texts = self._stop_texts()
        if not texts and not bool(ended.any()):
            return []
        indices = sorted({*ended.nonzero().squeeze(1).tolist(), *texts})
        columns.done[indices] = True
        return [
            self._ended(index, hit=bool(hit[index]), text=index in texts)
            for index in indices
        ]

    @torch.inference_mode()
    def advance(self) -> None:
        """Run the model on the newest token of every row."""
        columns = self._columns
        newest = torch.minimum(columns.steps, columns.limit)[:, None] - 1
        columns.mask = pad(columns.mask, (0, 1), value=1)
        columns.logits = self._model.next_logits(
            columns.ids.gather(1, newest),
            mask=columns.mask,
            positions=columns.position[:, None],
            cache=self._cache,
        )
        columns.position = columns.position + 1

    @torch.inference_mode()
    def compact(self) -> None:
        """Drop the rows that ended, and columns that are padding in all others."""
        keep = (~self._columns.done).nonzero().squeeze(1)
        if len(keep) == len(self._rows):
            return
        skip = int(self._columns.mask[keep].argmax(dim=1).min())
        self._columns.select(keep, skip=skip)
        select_rows(self._cache, keep, skip=skip)
        self._rows = [self._rows[index] for index in keep.tolist()]

    @torch.inference_mode()
    def join(self, other: DecodeBatch) -> None:
        """Take over the rows of ``other``, which must not be used afterwards.

        Both must have logits that were not sampled from yet.
        """
        self._columns.join(other._columns)
        join_rows(self._cache, other._cache)
        self._rows += other._rows

    @torch.inference_mode()
    def abort(self) -> list[Response]:
        """End all rows that have not ended; returns what they have."""
        live = (~self._columns.done).nonzero().squeeze(1).tolist()
        self._columns.done[:] = True
        return [
            self._response(index, finish="abort", stop_reason="abort") for index in live
        ]

    def _stop_texts(self) -> set[int]:
        """Indices of rows whose newest token completed a stop text."""
        found = set()
        for index, row in enumerate(self._rows):
            if row.stop_text is not None and not bool(self._columns.done[index]):
                num_ids = int(self._columns.steps[index])
                ids = self._columns.ids[index]
                window = ids[max(0, num_ids - row.stop_text.window) : num_ids]
                if row.stop_text.completed_by(window.tolist()):
                    found.add(index)
        return found

    def _ended(self, index: int, *, hit: bool, text: bool) -> Response:
        row, length = self._rows[index], int(self._columns.steps[index])
        if hit:
            newest = int(self._columns.ids[index, length - 1])
            reason = EOS if newest in self._model.eos_ids else STOP_TOKEN
            return self._response(index, finish="stop", stop_reason=reason)
        if text:
            return self._response(index, finish="stop", stop_reason=STOP_STRING)
        own = row.limit == row.request.sampling.max_new_tokens
        reason = LENGTH if own else CONTEXT
        return self._response(index, finish="length", stop_reason=reason)

    def _response(self, index: int, *, finish: Finish, stop_reason: str) -> Response:
        length = int(self._columns.steps[index])
        return Response(
            row=self._rows[index],
            output_ids=tuple(self._columns.ids[index, :length].tolist()),
            log_probs=self._columns.log_probs[index, :length].numpy().copy(),
            finish=finish,
            stop_reason=stop_reason,
        )


def _new_columns(
    rows: Sequence[Row], *, mask: Tensor, logits: Tensor, eos_ids: frozenset[int]
) -> _Columns:
    sampling = [row.request.sampling for row in rows]
    longest = max(row.limit for row in rows)
    stops = [sorted(eos_ids | set(each.stop_token_ids)) for each in sampling]
    widest = max(1, *(len(ids) for ids in stops))
    uniforms = [
        draw_uniforms(count=row.limit, seed=row.request.sampling.seed) for row in rows
    ]
    return _Columns(
        mask=mask,
        position=mask.sum(1),
        steps=torch.zeros(len(rows), dtype=torch.int64),
        limit=torch.tensor([row.limit for row in rows]),
        temperature=torch.tensor([each.temperature for each in sampling]).float(),
        top_p=torch.tensor([each.top_p for each in sampling]).float(),
        top_k=torch.tensor([each.top_k for each in sampling]),
        stop_ids=torch.tensor(
            [ids + [NO_TOKEN] * (widest - len(ids)) for ids in stops]
        ),
        uniforms=torch.stack([pad(u, (0, longest - len(u))) for u in uniforms]),
        ids=torch.zeros(len(rows), longest, dtype=torch.int64),
        log_probs=torch.zeros(len(rows), longest),
        logits=logits,
        done=torch.zeros(len(rows), dtype=torch.bool),
    )


def _widen(
    first: Tensor, second: Tensor, *, left: bool, fill: int
) -> tuple[Tensor, Tensor]:
    """Pad the narrower of two [B, N] tensors to the other's width."""
    width = max(first.shape[1], second.shape[1])
    both = []
    for tensor in (first, second):
        missing = width - tensor.shape[1]
        both.append(pad(tensor, (missing, 0) if left else (0, missing), value=fill))
    return both[0], both[1]
