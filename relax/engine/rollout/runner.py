"""The rollout runner: data, prompts, rewards and the rollout function, as a Ray actor.

A plain asyncio class; `relax.controller.workers` makes it an actor. It imports no
torch: the engine lives in other processes, reached through `ActorBackend`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relax.arguments import Arguments
from relax.arguments.groups import RolloutSettings
from relax.arguments.hooks import SIGNATURES, load_hook
from relax.backends.ray_border import answer
from relax.backends.rollout import GenerateOutput, GenerateRequest
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rewards.pool import RewardPool
from relax.engine.rollout.context import (
    GenerationProgress,
    RolloutClient,
    RolloutFnEvalOutput,
    RolloutFnTrainOutput,
)
from relax.engine.rollout.data_source import PromptSettings, RolloutDataSource
from relax.engine.rollout.sample import Sample
from relax.engine.rollout.vocabulary import vocabulary_hash, vocabulary_rows
from relax.errors import EngineDied, EngineMismatch, EngineUnreachable
from relax.measure.reduction import Metrics
from relax.observe.worker_process import prepare_worker


@dataclass(frozen=True, kw_only=True)
class RunnerOpened:
    """What the runner says of itself once it is up.

    Attributes:
        vocabulary: ``(id, bytes, special)`` of every token.
    """

    pid: int
    vocabulary: Sequence[tuple[int, bytes, bool]]
    vocabulary_digest: str


@dataclass(frozen=True, kw_only=True)
class ProgressReport:
    """What happened in the runner since the last report.

    Attributes:
        samples: Finished since then, rewards included.
        lines: Log lines in upstream's form.
    """

    progress: GenerationProgress
    samples: Sequence[Sample]
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RolloutOutput:
    """A finished rollout: samples sorted by index, and the function's own metrics."""

    samples: Sequence[Sample]
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvaluationRows:
    """One evaluation set, one entry a sample."""

    rewards: Sequence[float | None]
    truncated: Sequence[bool]


class ActorBackend:
    """A `RolloutBackend` that lives in another process.

    Requests go round the engines in turn; weight updates do not come this way.
    """

    def __init__(self, engines: Mapping[str, Any]) -> None:
        self._engines = list(engines.items())
        self._turn = 0

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generates on the next engine."""
        turn, engines = self._turn, len(self._engines)
        if request.together is None:
            self._turn += 1
        else:
            turn = request.together.number
            request = replace(request, together=request.together.share(engines))
        name, engine = self._engines[turn % engines]
        output: GenerateOutput = await answer(
            engine.generate.remote(request), worker=name
        )
        return output

    async def abort(self) -> int:
        """Aborts on all engines."""
        counts = await asyncio.gather(
            *(answer(e.abort.remote(), worker=n) for n, e in self._engines)
        )
        return sum(counts)


class ActorRewards:
    """A reward worker that lives in another process."""

    def __init__(self, name: str, worker: Any) -> None:
        self._name = name
        self._worker = worker

    async def score(self, samples: list[dict[str, Any]]) -> list[ScoreOutcome]:
        """One outcome a sample, in order."""
        outcomes: list[ScoreOutcome] = await answer(
            self._worker.score.remote(samples), worker=self._name
        )
        return outcomes


class _LineHandler(logging.Handler):
    """Keeps formatted lines for the driver's log."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


class RolloutRunner:
    """Runs the rollout function.

    Args:
        arguments: Of the run.
        run_dir: The run folder, for the worker's own log.
        engines: Actor handles by name.
        rewards: Actor handles by name.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        run_dir: Path,
        engines: Mapping[str, Any],
        rewards: Mapping[str, Any],
    ) -> None:
        self._pid = prepare_worker(run_dir, "rollout-runner")
        self._arguments = arguments
        self._backend = ActorBackend(engines)
        self._rewards = RewardPool(
            [ActorRewards(name, worker) for name, worker in rewards.items()],
            max_concurrency=arguments.reward.reward_max_concurrency,
        )
        self._samples: list[Sample] = []
        self._lines: list[str] = []
        self._progress = GenerationProgress()
        self._abort = False

    async def open(self) -> RunnerOpened:
        """Loads tokenizer, data and the rollout function."""
        # Heavy and slow to import, and needed in this process only.
        from transformers import AutoTokenizer  # noqa: PLC0415

        checkpoint = str(self._arguments.checkpoint.hf_checkpoint)
        tokenizer = await asyncio.to_thread(AutoTokenizer.from_pretrained, checkpoint)
        self._data = RolloutDataSource.from_settings(
            self._arguments.data,
            batch=self._arguments.batch,
            rollout=self._arguments.rollout,
            tokenizer=tokenizer,
        )
        rollout = self._arguments.rollout
        self._function = rollout_hook("rollout_function_path", rollout)
        self._eval_function = rollout_hook("eval_function_path", rollout)
        log = logging.getLogger("relax.rollout")
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(_LineHandler(self._lines))
        self._client = RolloutClient(
            backend=self._backend,  # type: ignore[arg-type]  # updates go another way
            tokenizer=tokenizer,
            reward=self._rewards,
            on_sample=self._samples.append,
            on_progress=self._set_progress,
            should_abort=lambda: self._abort,
            log=log,
        )
        rows = vocabulary_rows(tokenizer)
        return RunnerOpened(
            pid=self._pid, vocabulary=rows, vocabulary_digest=vocabulary_hash(rows)
        )

    async def generate(self, rollout_id: int) -> RolloutOutput:
        """Runs the rollout function for one rollout."""
        self._abort = False
        begun = self._data.state()
        try:
            output = await self._function(
                self._arguments, rollout_id, self._data, self._client, evaluation=False
            )
        except (EngineDied, EngineUnreachable):
            # The same prompts again, once there is an engine.
            self._data.restore(begun)
            raise
        if not isinstance(output, RolloutFnTrainOutput):
            raise EngineMismatch(
                "the rollout function returned "
                f"{type(output).__name__}, not RolloutFnTrainOutput",
                where=str(self._arguments.rollout.rollout_function_path),
            )
        return RolloutOutput(samples=output.flat, metrics=output.metrics)

    async def evaluate(self, rollout_id: int) -> Mapping[str, EvaluationRows]:
        """Goes through every evaluation set once.

        Returns:
            By set: reward (None where a sample has none) and whether it was truncated.
        """
        found: dict[str, EvaluationRows] = {}
        for name, data in self._eval_data():
            output = await self._eval_function(
                self._arguments, rollout_id, data, self._client, evaluation=True
            )
            # An evaluation is not part of the rollout that a person watches.
            self._samples.clear()
            if not isinstance(output, RolloutFnEvalOutput):
                raise EngineMismatch(
                    "the evaluation function returned "
                    f"{type(output).__name__}, not RolloutFnEvalOutput",
                    where=str(self._arguments.rollout.eval_function_path),
                )
            if not output.data:
                # A forged rollout has no evaluation to replay.
                continue
            (rows,) = output.data.values()
            found[name] = EvaluationRows(
                rewards=rows["rewards"], truncated=rows["truncated"]
            )
        return found

    def _eval_data(self) -> Iterator[tuple[str, RolloutDataSource]]:
        data, words = self._arguments.data, self._arguments.run.eval_prompt_data
        for name, path in zip(words[::2], words[1::2], strict=True):
            settings = PromptSettings(
                prompt_data=Path(path),
                input_key=data.input_key,
                label_key=data.label_key,
                metadata_key=data.metadata_key,
                tool_key=data.tool_key,
                apply_chat_template=data.apply_chat_template,
                epochs=1,
                max_prompt_len=self._arguments.rollout.rollout_max_prompt_len,
            )
            tokenizer = self._client.tokenizer
            yield name, RolloutDataSource.open(settings, tokenizer=tokenizer)

    async def take_progress(self) -> ProgressReport:
        """What happened since the last call."""
        report = ProgressReport(
            progress=self._progress,
            samples=list(self._samples),
            lines=list(self._lines),
        )
        self._samples.clear()
        self._lines.clear()
        return report

    async def abort(self) -> None:
        """Aborts the generation; partial samples are kept."""
        self._abort = True

    async def cursor(self) -> Mapping[str, Any]:
        """Where the data source stands, as plain data."""
        return self._data.state()

    async def restore_cursor(self, state: Mapping[str, Any]) -> None:
        """Brings the data source back to where `cursor` was called."""
        self._data.restore(state)

    def _set_progress(self, progress: GenerationProgress) -> None:
        self._progress = progress


def rollout_hook(flag: str, settings: RolloutSettings) -> Callable[..., Any]:
    """The rollout or evaluation function that a flag names."""
    path = getattr(settings, flag) or settings.rollout_function_path
    expected = next(signature for signature in SIGNATURES if signature.flag == flag)
    return load_hook(path, expected)
