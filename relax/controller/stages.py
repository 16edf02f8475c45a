"""The stages of a rollout: one method each, called by the loop at its pace."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from relax.arguments import Arguments
from relax.backends.training import (
    AdvantageReport,
    StepReport,
    micro_batches,
    train_rows,
)
from relax.controller.chronicle import Chronicle
from relax.controller.engine_loss import tell_loss
from relax.controller.evaluation import evaluate
from relax.controller.feed import Feed, Load
from relax.controller.hands import StageHeldError, StageResult
from relax.controller.modes import StagePlan
from relax.controller.pushing import push_weights, refuse_other_weights, verify_weights
from relax.controller.recorder import RecordsInTurn
from relax.controller.rollout import (
    RolloutInHand,
    statistics_columns,
    trainable_samples,
)
from relax.controller.saving import Checkpoints
from relax.controller.state import RunStage
from relax.controller.trainers import call_trainers, hand_out, joined_rows
from relax.controller.workers import Workers
from relax.errors import EngineDied, EngineUnreachable
from relax.events.types import (
    RolloutFinished,
    Stage,
    TrainStep,
)
from relax.measure.reduction import (
    Gauge,
    Metrics,
    Sum,
    merge_metrics,
    metric_values,
)
from relax.measure.rollout_metrics import rollout_metrics
from relax.observe.sample_rows import choose_kept, sample_rows
from relax.records.schema import StageFile

_TRAINER_STAGES = (
    Stage.REF_LOG_PROBS,
    Stage.LOG_PROBS,
    Stage.ADVANTAGES,
    Stage.TRAIN,
)
_EVALUATED_AFTER = (Stage.REWARD, Stage.UPDATE_WEIGHTS)


class Stages:
    """Carries out the stages of one mode; `relax.controller.run_hands` has them.

    Args:
        arguments: Of the run.
        workers: The run's actors, started.
        chronicle: Where all that happens is written down.
        plan: Mode and stages of the run.
        load: Gives the samples of a rollout instead of the rollout function.
        weights: Version and fingerprint of what the engines hold.

    Attributes:
        drill: Whether a fault was ordered.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        workers: Workers,
        chronicle: Chronicle,
        plan: StagePlan,
        load: Load | None = None,
        weights: tuple[int, str] | None = None,
    ) -> None:
        self._arguments = arguments
        self._workers = workers
        self._chronicle = chronicle
        self._events = chronicle.events
        self._log = chronicle.log
        recorder = chronicle.recorder
        self._records = RecordsInTurn(recorder, log=chronicle.log)
        self._verdicts = chronicle.verdicts
        self._dumper = chronicle.dumper
        self._plan = plan
        self._reward_key = arguments.reward.reward_key
        self._feed = Feed(
            arguments,
            workers=workers,
            chronicle=chronicle,
            can_wait=plan.can_wait,
            load=load,
        )
        self._checkpoints = Checkpoints(
            arguments,
            workers=workers,
            log=chronicle.log,
            run_id=recorder.run_id,
            attempt=recorder.attempt,
        )
        self.drill = bool(arguments.debug.inject_fault)
        opened = workers.trainer_opened
        at_start = (opened.weights_version if opened else 0, "")
        self._version, self._fingerprint = weights or at_start
        self._first_rollout = recorder.first_rollout
        self._rollout = self._begin(recorder.first_rollout - 1)
        self._methods: Mapping[Stage, Callable[[int], Awaitable[StageResult]]] = {
            Stage.GENERATE: self._generate,
            Stage.REWARD: self._reward,
            Stage.REF_LOG_PROBS: self._ref_log_probs,
            Stage.LOG_PROBS: self._log_probs,
            Stage.ADVANTAGES: self._advantages,
            Stage.TRAIN: self._train,
            Stage.UPDATE_WEIGHTS: self._update_weights,
        }

    async def run(self, order: RunStage, *, judge: bool) -> StageResult:
        """Runs one stage; with ``judge`` its verdicts are there when it returns."""
        began = time.monotonic()
        idle = order.stage in _TRAINER_STAGES and not self._rollout.trainable
        async with self._telling_of_a_loss(order):
            method = self._methods[order.stage]
            result = StageResult() if idle else await method(order.rollout_id)
            seconds = time.monotonic() - began
            if self.evaluates(order):
                evaluated = await self._evaluation(order.rollout_id)
                metrics = {**result.metrics, **evaluated}
                result = dataclasses.replace(result, metrics=metrics)
        timed: Metrics = {f"perf/{order.stage}_time": Sum(seconds)}
        self._rollout.metrics.append({**result.metrics, **timed})
        given = await self._verdicts.after(order, self._rollout, wait=judge)
        refuse_other_weights(result.metrics, drill=self.drill)
        also: tuple[Metrics, ...] = (*result.also, timed)
        last = order.stage is self._plan.stages[-1]
        if last and order.rollout_id >= self._first_rollout:
            also += (self._finish_rollout(order.rollout_id),)
        return dataclasses.replace(result, verdicts=given, also=also)

    @contextlib.asynccontextmanager
    async def _telling_of_a_loss(self, order: RunStage) -> AsyncIterator[None]:
        """What a lost engine means for a stage: the run waits before it if it can."""
        try:
            yield
        except (EngineDied, EngineUnreachable) as error:
            await tell_loss(
                error,
                order,
                workers=self._workers,
                chronicle=self._chronicle,
                generates=order.stage is Stage.GENERATE and self._feed.load is None,
            )
            if not self._plan.can_wait:
                raise
            raise StageHeldError(error) from error

    @property
    def weights(self) -> tuple[int, str]:
        """Version and fingerprint of the weights that the next samples are made on."""
        return self._version, self._fingerprint

    @property
    def last_stage(self) -> Stage:
        """With which a rollout is over."""
        return self._plan.stages[-1]

    def feed_by(self, load: Load) -> None:
        """From now on samples come from there."""
        self._feed.load = load

    async def settle(self) -> None:
        """Waits for the last record, and for verdicts that are still being given."""
        await self._records.settle()
        await self._verdicts.settle()

    async def _generate(self, rollout_id: int) -> StageResult:
        total = self._arguments.data.num_rollout
        self._log.info(f"Start rollout {rollout_id}/{total}")
        rollout = self._rollout = self._begin(rollout_id)
        output = await self._feed.samples(rollout)
        rollout.samples = output.samples
        rollout.kept = choose_kept(
            output.samples, most=self._arguments.run.record_samples
        )
        rollout.columns = dict(
            sample_rows(
                output.samples,
                rollout_id=rollout_id,
                kept=rollout.kept,
                reward_key=self._reward_key,
            )
        )
        self._log.info(f"Finish rollout {rollout_id}/{total}")
        return StageResult(metrics=output.metrics)

    async def _reward(self, rollout_id: int) -> StageResult:
        rollout = self._rollout
        metrics = rollout_metrics(statistics_columns(rollout.samples, self._reward_key))
        record = await self._records.begin(StageFile.SAMPLES, rollout.columns, rollout)
        trainable = trainable_samples(rollout.samples, self._reward_key)
        rollout.trainable = bool(trainable)
        await self._dumper.take_samples(rollout, trainable)
        if trainable and self._workers.trainers:
            await hand_out(
                self._workers,
                trainable,
                batch=self._arguments.batch,
                rollout=rollout,
                reward_key=self._reward_key,
            )
        elif not trainable:
            self._log.warning(f"rollout {rollout_id} was aborted: nothing to train on")
        left_out = len(rollout.samples) - len(trainable)
        counts = {
            "rollout/samples": Sum(len(rollout.samples)),
            "rollout/samples_not_trained": Sum(left_out),
        }
        metrics = {**metrics, **counts}
        self._log.info(f"rollout {rollout_id}: {metric_values(metrics)}")
        return StageResult(metrics=metrics, record=record)

    async def _ref_log_probs(self, _rollout_id: int) -> StageResult:
        reports = await self._all_trainers("ref_log_probs")
        passes = {"ref_log_probs": reports[0].pass_id}
        self._rollout.passes.update(passes)
        metrics = merge_metrics(report.metrics for report in reports)
        return StageResult(metrics=metrics, passes=passes)

    async def _log_probs(self, rollout_id: int) -> StageResult:
        entropy = rollout_id == self._first_rollout or self._rollout.observed
        reports = await self._all_trainers("log_probs", entropy=entropy)
        passes = {"log_probs": reports[0].pass_id}
        if entropy:
            passes["entropy"] = reports[0].pass_id
        self._rollout.passes.update(passes)
        metrics = merge_metrics(report.metrics for report in reports)
        if self._version == 0 and metric_values(metrics).get("logprob_ref/unequal"):
            # Nothing was trained yet: passes made again say whose fault it is.
            repeated = await self._all_trainers("repeated")
            metrics = {**metrics, **merge_metrics(repeated)}
        return StageResult(metrics=metrics, passes=passes)

    async def _advantages(self, rollout_id: int) -> StageResult:
        reports: list[AdvantageReport] = await self._all_trainers("advantages")
        metrics = merge_metrics(report.metrics for report in reports)
        record = None
        if self._rollout.observed:
            rows = joined_rows([report.columns() for report in reports])
            aligned = self._rollout.add_columns(rows)
            record = await self._records.begin(
                StageFile.LOGPROBS, aligned, self._rollout
            )
        before = [m for m in self._rollout.metrics if "rollout/log_probs" in m]
        shown = metric_values(merge_metrics([*before, metrics]))
        self._log.info(f"rollout {rollout_id}: {_of_prefix(shown, 'rollout/')}")
        return StageResult(metrics=metrics, record=record)

    async def _train(self, rollout_id: int) -> StageResult:
        reports: list[list[StepReport]] = await self._all_trainers("train")
        steps = reports[0]
        planned = self._arguments.batch.num_steps_per_rollout
        for step in steps:
            number = rollout_id * planned + step.step_id
            self._events.append(
                TrainStep(
                    rollout_id=rollout_id,
                    step_id=step.step_id,
                    step=number,
                    metrics=step.metrics,
                    vacuous=step.vacuous,
                    skipped=step.skipped,
                )
            )
            self._log.info(f"step {number}: {metric_values(step.metrics)}")
        if Stage.UPDATE_WEIGHTS not in self._plan.stages:
            # No engine: the next samples are trained on by what was just made.
            self._version += sum(not step.skipped for step in steps)
            self._fingerprint = ""
        rows = joined_rows([train_rows(r, rollout_id=rollout_id) for r in reports])
        record = await self._records.begin(StageFile.TRAIN, rows, self._rollout)
        await self._dump_ranks(rollout_id, reports)
        await self._checkpoints.save_if_due(rollout_id)
        # The first step's metrics: a grad_norm or KL of one step is never averaged.
        return StageResult(
            metrics=steps[0].metrics,
            record=record,
            also=tuple(step.metrics for step in steps[1:]),
        )

    async def _dump_ranks(
        self, rollout_id: int, reports: Sequence[Sequence[StepReport]]
    ) -> None:
        if not self._dumper.keeps:
            return
        columns = await self._all_trainers("train_columns")
        await self._dumper.take_ranks(
            rollout_id,
            columns=dict(enumerate(columns)),
            micro_batches=[b for steps in reports for b in micro_batches(steps)],
            steps=[step.metrics for step in reports[0]],
        )

    async def _update_weights(self, rollout_id: int) -> StageResult:
        return StageResult(metrics=await self.push_weights(rollout_id))

    async def push_weights(self, rollout_id: int) -> Metrics:
        """Brings the trainer's weights to the engines.

        Args:
            rollout_id: The rollout after which it happens.
        """
        pushed = await push_weights(
            self._workers, rollout_id=rollout_id, chronicle=self._chronicle
        )
        self._version, self._fingerprint = pushed.version, pushed.fingerprint
        return pushed.metrics

    async def verify_weights(self, before: int) -> str:
        """Compares the weights of all sides; says what was found.

        Args:
            before: The rollout that comes next, or that is under way.
        """
        return await verify_weights(
            self._workers,
            rollout_id=before - 1,
            version=self._version,
            chronicle=self._chronicle,
        )

    def evaluates(self, order: RunStage) -> bool:
        """Whether an evaluation follows on a stage: on the last one with an engine."""
        run = self._arguments.run
        if order.stage is not self.last_stage or order.stage not in _EVALUATED_AFTER:
            return False
        if run.eval_interval is None or (order.rollout_id + 1) % run.eval_interval:
            return False
        return order.rollout_id >= self._first_rollout or not run.skip_eval_before_train

    async def _evaluation(self, rollout_id: int) -> Metrics:
        began = time.monotonic()
        metrics = await evaluate(self._workers.runner, rollout_id=rollout_id)
        self._log.info(f"eval {rollout_id}: {metric_values(metrics)}")
        return {**metrics, "perf/eval_time": Sum(time.monotonic() - began)}

    def _begin(self, rollout_id: int) -> RolloutInHand:
        run = self._arguments.run
        # The first rollout is where the checks of the guide are due: always seen.
        chosen = (rollout_id - self._first_rollout) % run.observe_every == 0
        return RolloutInHand(
            rollout_id=rollout_id,
            observed=run.observe and (chosen or rollout_id < self._first_rollout),
            weights_version=self._version,
            fingerprint=self._fingerprint,
        )

    async def _all_trainers(self, method: str, *args: Any, **settings: Any) -> Any:
        """Calls a method on every rank; the first error in time wins."""
        return await call_trainers(self._workers, method, *args, **settings)

    def _finish_rollout(self, rollout_id: int) -> Metrics:
        rollout = self._rollout
        seconds = time.monotonic() - rollout.began
        tokens = sum(sample.response_length for sample in rollout.samples)
        parts = [
            {k: m for k, m in metrics.items() if not k.startswith("train/")}
            for metrics in rollout.metrics
        ]
        perf: Metrics = {
            "perf/step_time": Sum(seconds),
            "perf/tokens_per_s": Gauge(tokens / seconds),
        }
        merged = merge_metrics([*parts, perf])
        self._events.append(
            RolloutFinished(
                rollout_id=rollout_id,
                weights_version=rollout.weights_version,
                metrics=merged,
            ),
            sync=True,
        )
        shown = _of_prefix(metric_values(merged), "perf/")
        self._log.info(f"perf {rollout_id}: {shown}")
        return perf


def _of_prefix(values: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {key: value for key, value in values.items() if key.startswith(prefix)}
