"""Generates and scores groups of samples with bounded concurrency.

    group ─► sample ─► generate ─► check ─► reward ─► on_sample      each as it finishes
                └ with --group-rm the reward waits for the whole group

What goes wrong with one sample is that sample's failure and no one else's; what goes
wrong with the engine ends the rollout.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np

from relax.backends.rollout import (
    STOP_STRING,
    Finish,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    Together,
)
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rollout.context import GenerationProgress, RolloutClient
from relax.engine.rollout.sample import Sample, SampleStatus
from relax.errors import EngineDied, EngineError, EngineUnreachable, RelaxError

ABORT_POLL_SECONDS = 0.1
LABEL_CHARACTERS = 100

STATUS_OF: dict[Finish, SampleStatus] = {
    "stop": SampleStatus.COMPLETED,
    "length": SampleStatus.TRUNCATED,
    "abort": SampleStatus.ABORTED,
}


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """How to generate the samples of one rollout.

    Attributes:
        sampling: For every sample; ``max_new_tokens`` and ``seed`` are set anew for
            each.
        seed_name: Together with a sample's index this gives its seed.
        max_context_len: Most tokens of prompt and response; None: the engine's limit.
        concurrency: Most requests in flight.
        group_rm: Score the samples of a group together.
    """

    sampling: SamplingParams
    seed_name: str
    max_context_len: int | None
    concurrency: int
    group_rm: bool


class Generation:
    """One rollout's generation.

    Args:
        settings: How to sample.
        client: Engine, tokenizer, rewards and callbacks.
        rollout_id: For log lines and request ids.
    """

    def __init__(
        self, settings: GenerationSettings, *, client: RolloutClient, rollout_id: int
    ) -> None:
        self._settings = settings
        self._client = client
        self._rollout_id = rollout_id
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._together: dict[int, Together] = {}
        self._aborting = False
        self._progress = GenerationProgress()
        self._logged_first = False
        self._last_finished: Sample | None = None

    async def run(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Fill in the samples of ``groups``, in place.

        Raises:
            EngineDied: The engine is gone.
            EngineUnreachable: The engine does not answer.
            WorkerError: A reward worker is gone.
        """
        samples = [sample for group in groups for sample in group]
        self._move(total=len(samples))
        at_once, name = min(len(samples), self._settings.concurrency), uuid4().hex
        self._together = {
            id(sample): Together(name=name, number=number, count=at_once)
            for number, sample in enumerate(samples[:at_once])
        }
        try:
            async with asyncio.TaskGroup() as outer:
                watcher = outer.create_task(self._watch_abort())
                async with asyncio.TaskGroup() as inner:
                    for group in groups:
                        inner.create_task(self._run_group(group))
                watcher.cancel()
        except BaseExceptionGroup as errors:
            raise _first_error(errors) from errors
        if self._last_finished is not None:
            text = _described(self._last_finished, label_characters=None)
            self._client.log.info(
                "Finish rollout: %s, rollout_id: %d", text, self._rollout_id
            )

    @property
    def num_aborted(self) -> int:
        """Samples aborted."""
        return self._progress.aborted

    async def _watch_abort(self) -> None:
        """Abort for as long as asked: a request may reach the engine after an abort."""
        while True:
            if self._aborting or self._client.should_abort():
                self._aborting = True
                await self._client.backend.abort()
            await asyncio.sleep(ABORT_POLL_SECONDS)

    async def _run_group(self, group: Sequence[Sample]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for sample in group:
                tasks.create_task(self._run_sample(sample))
        if self._settings.group_rm:
            await self._score_group(group)
            for sample in group:
                self._finished(sample)
        if group and group[0].status is not SampleStatus.ABORTED:
            self._log_first(group[0])
            self._last_finished = group[0]

    async def _run_sample(self, sample: Sample) -> None:
        async with self._slots:
            if self._aborting:
                sample.status = SampleStatus.ABORTED
                sample.stop_reason = "abort"
                sample.abort_count += 1
                running = 0
            else:
                self._move(running=1)
                running = 1
                await self._generate(sample)
            if self._settings.group_rm:
                # Reported once the group is scored.
                self._move(running=-running)
                return
            if sample.status in (SampleStatus.COMPLETED, SampleStatus.TRUNCATED):
                (outcome,) = await self._client.reward.score([sample])
                _apply(outcome, sample=sample)
            self._move(running=-running)
        self._finished(sample)

    async def _generate(self, sample: Sample) -> None:
        if not sample.tokens:
            text = str(sample.prompt)
            sample.tokens = self._client.tokenizer.encode(text)
        num_prompt = len(sample.tokens)
        sampling, longest = self._settings.sampling, self._settings.max_context_len
        allowed = sampling.max_new_tokens
        if longest is not None:
            allowed = min(allowed, longest - num_prompt)
        if allowed < 1:
            sample.fail(
                f"the prompt has {num_prompt} tokens, which leaves no room in the "
                f"--rollout-max-context-len of {longest}"
            )
            return
        request = GenerateRequest(
            request_id=f"{self._rollout_id}-{sample.index}",
            input_ids=tuple(sample.tokens),
            sampling=replace(
                sampling,
                max_new_tokens=allowed,
                seed=sample_seed(self._settings.seed_name, index=sample.index),
            ),
            together=self._together.get(id(sample)),
        )
        try:
            output = await self._client.backend.generate(request)
        except (EngineDied, EngineUnreachable):
            raise
        except EngineError as error:
            sample.fail(str(error))
            return
        self._take(output, sample=sample)

    def _take(self, output: GenerateOutput, *, sample: Sample) -> None:
        """Put the engine's answer into the sample, as it came."""
        skip = self._settings.sampling.skip_special_tokens
        tokenizer, length = self._client.tokenizer, len(output.output_ids)
        sample.tokens = [*sample.tokens, *output.output_ids]
        sample.response_length = length
        sample.response = tokenizer.decode(
            list(output.output_ids), skip_special_tokens=skip
        )
        sample.rollout_log_probs = output.log_probs
        sample.weight_versions.append(output.weight_version)
        sample.stop_reason = output.stop_reason
        sample.status = STATUS_OF[output.finish]
        sample.abort_count += output.finish == "abort"
        failure = output_failure(output)
        if failure:
            sample.fail(failure)
            return
        sample.loss_mask = [1 for _ in output.output_ids]
        if output.finish == "stop":
            sample.metadata["stop_text"] = self._stop_text(output, sample.response)

    def _stop_text(self, output: GenerateOutput, response: str) -> str:
        """The end of the response that made it end; '' when it was left out."""
        sampling = self._settings.sampling
        if output.stop_reason == STOP_STRING:
            places = [response.rfind(stop) for stop in sampling.stop]
            found = [place for place in places if place >= 0]
            return response[min(found) :] if found else ""
        text = self._client.tokenizer.decode(
            [output.output_ids[-1]], skip_special_tokens=sampling.skip_special_tokens
        )
        return text if response.endswith(text) else ""

    async def _score_group(self, group: Sequence[Sample]) -> None:
        scorable = (SampleStatus.COMPLETED, SampleStatus.TRUNCATED)
        left_out = [sample for sample in group if sample.status not in scorable]
        if not left_out:
            outcomes = await self._client.reward.score(group)
            for outcome, sample in zip(outcomes, group, strict=True):
                _apply(outcome, sample=sample)
            return
        for sample in group:
            if sample.status in scorable:
                sample.fail(
                    f"its group was not scored: sample {left_out[0].index} is "
                    f"{left_out[0].status.value}"
                )

    def _finished(self, sample: Sample) -> None:
        aborted = sample.status is SampleStatus.ABORTED
        self._move(
            done=0 if aborted else 1,
            aborted=1 if aborted else 0,
            tokens=sample.response_length,
            longest=sample.response_length,
        )
        self._client.on_sample(sample)

    def _move(self, *, longest: int = 0, **changes: int) -> None:
        """Add to the counts of the progress and report it."""
        before = self._progress
        self._progress = replace(
            before,
            longest=max(before.longest, longest),
            **{name: getattr(before, name) + by for name, by in changes.items()},
        )
        self._client.on_progress(self._progress)

    def _log_first(self, sample: Sample) -> None:
        if not self._logged_first:
            self._logged_first = True
            text = _described(sample, label_characters=LABEL_CHARACTERS)
            self._client.log.info("First rollout sample: %s", text)


def sample_seed(name: str, *, index: int | None) -> int:
    """The seed of a sample: the same in every run with the same ``--rollout-seed``.

    Args:
        name: The run's seed and what is being generated.
        index: Of the sample.

    Returns:
        63 bits of a hash of both.
    """
    digest = hashlib.sha256(f"{name}:{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def output_failure(output: GenerateOutput) -> str:
    """Why an engine's answer cannot be used; '' when it can.

    Log-probs that are missing, too few or not finite fail the sample: they are never
    filled in.
    """
    num_ids, log_probs = len(output.output_ids), output.log_probs
    if num_ids == 0 and output.finish != "abort":
        return "the engine returned no tokens"
    if log_probs is None:
        return "the engine returned no log-probs"
    if log_probs.shape != (num_ids,):
        return f"the engine returned {log_probs.shape} log-probs for {num_ids} tokens"
    wrong = np.flatnonzero(~np.isfinite(log_probs))
    if len(wrong):
        first = int(wrong[0])
        return (
            f"{len(wrong)} of {num_ids} log-probs are not finite, the first is "
            f"{log_probs[first]} at position {first}"
        )
    return ""


def _apply(outcome: ScoreOutcome, *, sample: Sample) -> None:
    if outcome.reward is None:
        sample.fail(outcome.failure)
    else:
        sample.reward = outcome.reward


def _described(sample: Sample, *, label_characters: int | None) -> str:
    """Upstream's description of a sample in a log line, on one line always."""
    label = str(sample.label)[:label_characters]
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in label)
    text = [f"{sample.prompt}{sample.response}"]
    return f"{text!r}, label: {shown}, reward: {sample.reward}"


def _first_error(errors: BaseExceptionGroup[Any]) -> BaseException:
    """The first error of relax in nested groups, else simply the first."""
    flat: list[BaseException] = []
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            flat.append(_first_error(error))
        else:
            flat.append(error)
    return next((each for each in flat if isinstance(each, RelaxError)), flat[0])
