"""What a rollout function is given, and what it hands back.

Any function named by ``--rollout-function-path`` has upstream's signature

    async def generate_rollout(args, rollout_id, data_source, data_system_client,
                               evaluation=False)

where ``data_system_client`` is this module's `RolloutClient`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relax.backends.rollout import RolloutBackend
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rollout.sample import Sample
from relax.measure.reduction import Metrics


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rollouts use."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str:
        """Ids to text."""
        ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Messages to the text of a prompt."""
        ...


class Scorer(Protocol):
    """Scores samples; `relax.engine.rewards.pool.RewardPool` is one."""

    async def score(self, samples: Sequence[Sample]) -> list[ScoreOutcome]:
        """One outcome a sample, in order. With ``--group-rm`` one call is a group."""
        ...


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """How far generation is; the fields of the `rollout_progress` event.

    Attributes:
        done: Samples finished, their reward included (failed ones too).
        running: Samples being generated or scored.
        aborted: Samples aborted so far.
        tokens: Response tokens of finished samples.
        longest: Response tokens of the longest finished sample.
        total: Samples the rollout will have.
    """

    done: int = 0
    running: int = 0
    aborted: int = 0
    tokens: int = 0
    longest: int = 0
    total: int = 0


def _ignore(_: object) -> None:
    """The callback of a caller that does not want to know."""


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class RolloutClient:
    """The parts of the run that a rollout function works with.

    Attributes:
        backend: The rollout engine.
        tokenizer: Of the checkpoint that the engine serves.
        reward: Scores finished samples.
        on_sample: Called once for each sample when it is finished, reward included.
        on_progress: Called whenever a sample starts or ends.
        should_abort: Asked several times a second; once true, generation is aborted.
        log: Where upstream's log lines go.
    """

    backend: RolloutBackend
    tokenizer: Tokenizer
    reward: Scorer
    on_sample: Callable[[Sample], None] = _ignore
    on_progress: Callable[[GenerationProgress], None] = _ignore
    should_abort: Callable[[], bool] = _never
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))


@dataclass(frozen=True, kw_only=True)
class RolloutFnTrainOutput:
    """What a rollout function returns for training.

    Attributes:
        samples: Groups in order of their index, samples in order of theirs.
        metrics: What the function measured itself, with its reductions.
    """

    samples: list[list[Sample]]
    metrics: Metrics = field(default_factory=dict)

    @property
    def flat(self) -> list[Sample]:
        """All samples, sorted by index."""
        return [sample for group in self.samples for sample in group]


@dataclass(frozen=True, kw_only=True)
class RolloutFnEvalOutput:
    """What a rollout function returns for an evaluation.

    Attributes:
        data: By data set: ``rewards`` (None where a sample has none), ``truncated``
            and ``samples``, as upstream.
        metrics: What the function measured itself, with its reductions.
    """

    data: Mapping[str, Mapping[str, list[Any]]]
    metrics: Metrics = field(default_factory=dict)
