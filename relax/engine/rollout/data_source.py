"""Prompts from a JSON-lines file, as groups of samples, with a cursor to save.

One object a line: ``{"input": "What is 2 plus 2?", "label": "4", "metadata": {…}}``,
keys as the flags name them. The prompt is text or a list of chat messages.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from relax.arguments.groups import BatchSettings, DataSettings, RolloutSettings
from relax.engine.rollout.context import Tokenizer
from relax.engine.rollout.sample import Message, Sample
from relax.errors import ArgumentError, RecordError

STATE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PromptSettings:
    """Which prompts, and what becomes of them. Fields are the flags of DataSettings.

    Attributes:
        shuffle: A new order each epoch, from ``seed`` and the epoch's number.
        epochs: How often to go through the prompts; None: without end.
        max_prompt_len: Longer prompts, in tokens, are left out and counted.
    """

    prompt_data: Path
    input_key: str = "input"
    label_key: str | None = None
    metadata_key: str = "metadata"
    tool_key: str = "tools"
    apply_chat_template: bool = False
    shuffle: bool = False
    seed: int = 42
    epochs: int | None = None
    n_samples_per_prompt: int = 1
    max_prompt_len: int | None = None


@dataclass(frozen=True, kw_only=True)
class PromptRow:
    """One line of the file."""

    line: int
    prompt: str | list[Message]
    label: str | None
    metadata: dict[str, Any]
    tools: list[Any] | None


@dataclass(kw_only=True)
class _Cursor:
    """Where the data source is.

    Attributes:
        position: Rows taken in this epoch, left-out ones included.
        num_filtered: Prompts left out so far for their length.
    """

    epoch: int = 0
    position: int = 0
    next_index: int = 0
    next_group: int = 0
    num_filtered: int = 0


class RolloutDataSource:
    """Hands out prompts as groups of samples; `open` makes one.

    Args:
        rows: Of the file, in its order.
        settings: What it was read with.
        digest: Of file and order; a saved cursor only fits the same.
        tokenizer: None leaves ``tokens`` empty; then there is no template and no limit.
    """

    def __init__(
        self,
        rows: list[PromptRow],
        *,
        settings: PromptSettings,
        digest: str,
        tokenizer: Tokenizer | None,
    ) -> None:
        self._rows = rows
        self._settings = settings
        self._digest = digest
        self._tokenizer = tokenizer
        self._cursor = _Cursor()
        self._order = self._order_of(0)

    @classmethod
    def open(cls, settings: PromptSettings, *, tokenizer: Tokenizer | None) -> Self:
        """Read and check the whole file.

        Raises:
            ArgumentError: The file or one of its lines cannot be used; names the line.
        """
        needs_tokenizer = settings.apply_chat_template or settings.max_prompt_len
        if needs_tokenizer and tokenizer is None:
            raise ArgumentError(
                "a chat template and a longest prompt need a tokenizer",
                where="--apply-chat-template, --rollout-max-prompt-len",
            )
        path = settings.prompt_data
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ArgumentError(
                f"the prompts cannot be read: {error.strerror or error}",
                where=f"--prompt-data {path}",
            ) from error
        rows = [
            _read_row(line, number=number, settings=settings)
            for number, line in enumerate(data.splitlines(), start=1)
            if line.strip()
        ]
        if not rows:
            raise ArgumentError(
                "the file has no prompts", where=f"--prompt-data {path}"
            )
        order = f"{settings.seed if settings.shuffle else 'in order'}\0".encode()
        digest = hashlib.sha256(order + data).hexdigest()
        return cls(rows, settings=settings, digest=digest, tokenizer=tokenizer)

    @classmethod
    def from_settings(
        cls,
        data: DataSettings,
        *,
        batch: BatchSettings,
        rollout: RolloutSettings,
        tokenizer: Tokenizer,
    ) -> Self:
        """Open the training prompts of a run; they never end.

        Raises:
            ArgumentError: As `open`, or ``--prompt-data`` is not given.
        """
        if data.prompt_data is None:
            raise ArgumentError("there are no prompts", where="--prompt-data")
        settings = PromptSettings(
            prompt_data=data.prompt_data,
            input_key=data.input_key,
            label_key=data.label_key,
            metadata_key=data.metadata_key,
            tool_key=data.tool_key,
            apply_chat_template=data.apply_chat_template,
            shuffle=data.rollout_shuffle,
            seed=data.rollout_seed,
            n_samples_per_prompt=batch.n_samples_per_prompt,
            max_prompt_len=rollout.rollout_max_prompt_len,
        )
        return cls.open(settings, tokenizer=tokenizer)

    @property
    def name(self) -> str:
        """Name of the data set: the file's, without its ending."""
        return self._settings.prompt_data.stem

    @property
    def num_filtered(self) -> int:
        """Prompts left out so far because they were too long."""
        return self._cursor.num_filtered

    def __len__(self) -> int:
        """Prompts in the file, those that will be left out included."""
        return len(self._rows)

    def get_samples(self, num_prompts: int) -> list[list[Sample]]:
        """Take the next prompts.

        Returns:
            Groups of ``n_samples_per_prompt`` pending samples. Fewer than asked, or
            none, once the last epoch is over.

        Raises:
            ArgumentError: Every prompt of the file is too long, or a chat template
                refuses one.
        """
        groups: list[list[Sample]] = []
        refused_in_a_row = 0
        while len(groups) < num_prompts:
            row = self._next_row()
            if row is None:
                break
            prompt = self._prompt(row)
            tokens = self._tokens(prompt)
            longest = self._settings.max_prompt_len
            if longest is not None and len(tokens) > longest:
                self._cursor.num_filtered += 1
                refused_in_a_row += 1
                if refused_in_a_row >= len(self._rows):
                    raise ArgumentError(
                        f"all {len(self._rows)} prompts exceed {longest} tokens",
                        where="--rollout-max-prompt-len",
                        hint="raise it, or leave it away",
                    )
                continue
            refused_in_a_row = 0
            groups.append(self._group(row, prompt=prompt, tokens=tokens))
        return groups

    def state(self) -> dict[str, Any]:
        """The cursor as plain data for `restore`."""
        return {
            "version": STATE_VERSION,
            "digest": self._digest,
            **vars(self._cursor),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back (or on) to where `state` was called.

        Raises:
            RecordError: The state is of another version, or of other prompts.
        """
        names = set(vars(self._cursor))
        if state.get("version") != STATE_VERSION or not names <= state.keys():
            raise RecordError(
                f"the data cursor has version {state.get('version')!r} and keys "
                f"{sorted(state)}; version {STATE_VERSION} is read here"
            )
        if state["digest"] != self._digest:
            raise RecordError(
                "the prompts or their order changed since the data cursor was saved",
                where=str(self._settings.prompt_data),
                hint="give the same --prompt-data, --rollout-shuffle, --rollout-seed",
            )
        self._cursor = _Cursor(**{name: state[name] for name in names})
        self._order = self._order_of(self._cursor.epoch)

    def rewound(self) -> RolloutDataSource:
        """Another source over the same rows, at the beginning."""
        return RolloutDataSource(
            self._rows,
            settings=self._settings,
            digest=self._digest,
            tokenizer=self._tokenizer,
        )

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self._rows)))
        if self._settings.shuffle:
            seed = f"{self._settings.seed}:{epoch}"
            random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
        return order

    def _next_row(self) -> PromptRow | None:
        cursor, epochs = self._cursor, self._settings.epochs
        if cursor.position == len(self._rows):
            if epochs is not None and cursor.epoch + 1 >= epochs:
                return None
            cursor.epoch += 1
            cursor.position = 0
            self._order = self._order_of(cursor.epoch)
        row = self._rows[self._order[cursor.position]]
        cursor.position += 1
        return row

    def _prompt(self, row: PromptRow) -> str:
        if not self._settings.apply_chat_template or self._tokenizer is None:
            return str(row.prompt)
        messages = row.prompt
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=row.tools, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:
            # A template is a program of the checkpoint: it may raise anything.
            raise ArgumentError(
                f"the chat template refuses this prompt: {error}",
                where=f"{self._settings.prompt_data}:{row.line}",
            ) from error
        return str(text)

    def _tokens(self, prompt: str) -> list[int]:
        if self._tokenizer is None:
            return []
        # The template writes its own special tokens.
        own = not self._settings.apply_chat_template
        return self._tokenizer.encode(prompt, add_special_tokens=own)

    def _group(self, row: PromptRow, *, prompt: str, tokens: list[int]) -> list[Sample]:
        cursor, group = self._cursor, []
        for _ in range(self._settings.n_samples_per_prompt):
            group.append(
                Sample(
                    group_index=cursor.next_group,
                    index=cursor.next_index,
                    prompt=prompt,
                    tokens=list(tokens),
                    label=row.label,
                    metadata=copy.deepcopy(row.metadata),
                )
            )
            cursor.next_index += 1
        cursor.next_group += 1
        return group


def _read_row(line: bytes, *, number: int, settings: PromptSettings) -> PromptRow:
    where = f"{settings.prompt_data}:{number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ArgumentError(f"this line is not JSON: {error}", where=where) from error
    if not isinstance(row, dict):
        raise ArgumentError(f"this line is {_kind(row)}, not an object", where=where)
    prompt = _required(row, settings.input_key, flag="--input-key", where=where)
    if isinstance(prompt, list):
        if not settings.apply_chat_template:
            raise ArgumentError(
                f"{settings.input_key!r} is a list of messages",
                where=where,
                hint="give --apply-chat-template, or text",
            )
    elif not isinstance(prompt, str):
        raise ArgumentError(
            f"{settings.input_key!r} is {_kind(prompt)}, not text or messages",
            where=where,
        )
    label = None
    if settings.label_key is not None:
        label = _required(row, settings.label_key, flag="--label-key", where=where)
    tools = row.get(settings.tool_key)
    metadata = row.get(settings.metadata_key)
    for key, value, kind in (
        (settings.tool_key, tools, list),
        (settings.metadata_key, metadata, dict),
    ):
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(
                f"{key!r} is {_kind(value)}, not a {kind.__name__}", where=where
            )
    return PromptRow(
        line=number,
        prompt=prompt,
        label=label if label is None or isinstance(label, str) else json.dumps(label),
        metadata=metadata or {},
        tools=tools,
    )


def _required(row: dict[str, Any], key: str, *, flag: str, where: str) -> Any:
    if key not in row:
        present = ", ".join(map(repr, row)) or "nothing"
        raise ArgumentError(
            f"this line has no {key!r}; it has {present}",
            where=where,
            hint=f"name the key with {flag}",
        )
    return row[key]


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
