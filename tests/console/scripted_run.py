"""A run folder as the engine writes it, without an engine: events and records.

For tests of the console and for benchmarks. Numbers are made up but consistent: the
columns of the records and the metrics of the events are computed by the same functions
that the engine uses.
"""

from __future__ import annotations

import os
import random
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relax.control.run_folder import (
    RunInfo,
    boot_id,
    process_start,
    write_run_info,
)
from relax.events.append import EventWriter
from relax.events.types import (
    Mode,
    Paused,
    RolloutFinished,
    RolloutProgress,
    RunFinished,
    RunStarted,
    Stage,
    StageFinished,
    StageStarted,
    StartupProgress,
    TrainStep,
    VerdictGiven,
    WeightsUpdated,
)
from relax.measure.logprob_metrics import logprob_metrics
from relax.measure.reduction import Gauge, Mean, Metrics
from relax.measure.rollout_metrics import RolloutColumns, rollout_metrics
from relax.records.schema import RecordMetadata, StageFile
from relax.records.write import (
    LiveWriter,
    rollout_folder,
    write_stage,
    write_vocabulary,
)
from relax.triage.verdict import Cause, Place, Status, Verdict

RUN_ID = "f00dcafe"
PIECES = ["<pad>", "<eos>", *"0123456789", " ", "+", "=", "?", ".", "What", " is",
          " plus", " equals", " the", " answer", ":", "\n", "你", "好"]  # fmt: skip
IDS = {piece: number for number, piece in enumerate(PIECES)}


@dataclass(kw_only=True)
class Script:
    """What the run does.

    Attributes:
        ref_noise: Size of log_probs - ref_log_probs in the first rollout.
        pid: Whose driver it claims to be; 0 for one that is long gone.
    """

    samples: int = 16
    group: int = 4
    tokens: int = 24
    num_rollout: int = 200
    ref_noise: float = 0.0
    rollout_noise: float = 3e-6
    seed: int = 7
    pid: int = field(default_factory=os.getpid)
    name: str = "tiny-arith"


class ScriptedRun:
    """Writes a run step by step.

    Args:
        run_dir: Where; made when missing.
        script: What the run does.
    """

    def __init__(self, run_dir: Path, script: Script | None = None) -> None:
        self.run_dir = run_dir
        self.script = script or Script()
        self.random = random.Random(self.script.seed)
        self.noise = np.random.default_rng(self.script.seed)
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "logs").mkdir(exist_ok=True)
        (run_dir / "logs" / "engine.log").write_text("engine: ready\n")
        self.vocab = write_vocabulary(
            run_dir,
            [(i, piece.encode(), i < 2) for i, piece in enumerate(PIECES)],
            digest="0123456789abcdef0123",
        )
        self.events = EventWriter(run_dir, run_id=RUN_ID, attempt=1)

    def open(self) -> ScriptedRun:
        """run.json and the first events."""
        script = self.script
        pid = script.pid
        write_run_info(
            self.run_dir,
            RunInfo(
                run_id=RUN_ID,
                name=script.name,
                attempt=1,
                host=socket.gethostname(),
                boot_id=boot_id(),
                pid=pid or 999_999,
                process_start=process_start(pid) if pid else 1,
                socket="",
                interpreter="python",
                started=time.time(),
            ),
        )
        self.events.open()
        self.events.append(
            RunStarted(
                run_id=RUN_ID,
                name=script.name,
                mode=Mode.FULL,
                num_rollout=script.num_rollout,
                samples_per_rollout=script.samples,
                vocab=self.vocab,
            )
        )
        for number, what in enumerate(("ray", "train-0", "rollout-0")):
            self.events.append(
                StartupProgress(what=what, done=True, seconds=2.0 * (number + 1))
            )
        self.events.append(
            WeightsUpdated(
                rollout_id=-1, version=0, fingerprint="ab" * 8, seconds=0.2, tensors=29
            )
        )
        return self

    def close(self) -> None:
        """Lets the writer finish."""
        self.events.close()

    def flush(self) -> None:
        """Waits until the events so far are in the file."""
        deadline = time.monotonic() + 5
        while not self.events._queue.empty() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.02)

    def start(self, rollout_id: int, stage: Stage) -> None:
        """A stage begins."""
        self.events.append(StageStarted(rollout_id=rollout_id, stage=stage))

    def end(
        self,
        rollout_id: int,
        stage: Stage,
        *,
        seconds: float = 0.2,
        metrics: Metrics | None = None,
    ) -> None:
        """A stage ends."""
        self.events.append(
            StageFinished(
                rollout_id=rollout_id,
                stage=stage,
                seconds=seconds,
                memory_bytes={"train-0": 900_000_000, "rollout-0": 700_000_000},
                metrics=metrics or {},
            )
        )

    def rollout(self, rollout_id: int, *, until: Stage | None = None) -> None:
        """A whole rollout, or its stages before ``until``."""
        samples = self.samples(rollout_id)
        seconds = {Stage.GENERATE: 1.2, Stage.TRAIN: 0.6}
        measured: dict[str, Metrics] = {}
        for stage in Stage:
            if stage is until:
                return
            self.start(rollout_id, stage)
            metrics = self.do_stage(rollout_id, stage, samples)
            measured[stage] = metrics
            if stage is Stage.TRAIN:
                self.train_step(rollout_id)
            took = seconds.get(stage, 0.1)
            self.end(rollout_id, stage, seconds=took, metrics=metrics)
            self.verdicts(rollout_id, stage)
        merged = {k: v for metrics in measured.values() for k, v in metrics.items()}
        self.events.append(
            RolloutFinished(
                rollout_id=rollout_id, weights_version=rollout_id, metrics=merged
            )
        )

    def do_stage(
        self, rollout_id: int, stage: Stage, samples: dict[str, list]
    ) -> Metrics:
        """Writes what the stage records and returns what it measures."""
        if stage is Stage.REWARD:
            folder = self.folder(rollout_id)
            write_stage(
                folder, StageFile.SAMPLES, samples, metadata=self.metadata(rollout_id)
            )
            return rollout_metrics(
                RolloutColumns(
                    rewards=samples["reward"],
                    group_index=samples["group_index"],
                    effective_lengths=samples["response_length"],
                    statuses=samples["status"],
                    responses=samples["response"],
                )
            )
        if stage is Stage.LOG_PROBS:
            return self.log_probs(rollout_id, samples)
        if stage is Stage.TRAIN:
            write_stage(
                self.folder(rollout_id),
                StageFile.TRAIN,
                self.micro_batches(rollout_id, samples),
                metadata=self.metadata(rollout_id),
            )
        if stage is Stage.UPDATE_WEIGHTS:
            self.events.append(
                WeightsUpdated(
                    rollout_id=rollout_id,
                    version=rollout_id + 1,
                    fingerprint=f"{rollout_id:016x}",
                )
            )
        return {}

    def folder(self, rollout_id: int) -> Path:
        """The rollout's record."""
        return rollout_folder(self.run_dir, attempt=1, rollout_id=rollout_id)

    def metadata(self, rollout_id: int) -> RecordMetadata:
        """What its files say of themselves."""
        return RecordMetadata(
            run_id=RUN_ID,
            attempt=1,
            rollout_id=rollout_id,
            weights_version=rollout_id,
            vocab=self.vocab,
            passes={"log_probs": "actor#1", "ref_log_probs": "ref#1"},
        )

    def samples(self, rollout_id: int) -> dict[str, list]:
        """Columns of the samples stage; more of them are right as the run goes on."""
        script = self.script
        skill = min(0.35 + rollout_id * 0.03, 0.95)
        rows: dict[str, list] = {name: [] for name in _SAMPLE_COLUMNS}
        for index in range(script.samples):
            self._sample(rows, rollout_id, index, skill)
        return rows

    def _sample(
        self, rows: dict[str, list], rollout_id: int, index: int, skill: float
    ) -> None:
        left, right = self.random.randint(1, 9), self.random.randint(1, 9)
        prompt = f"What is {left} plus {right}?"
        truncated = index == 5
        good = self.random.random() < skill and not truncated
        answer = left + right if good else self.random.randint(2, 40)
        body = [*str(left), " ", "+", " ", *str(right), " ", "=", " ", *str(answer)]
        pieces = body * 5 if truncated else [*body, ".", "<eos>"]
        pieces = pieces[: self.script.tokens]
        ids = [IDS[piece] for piece in pieces]
        prompt_ids = [IDS["What"], IDS[" is"], IDS[str(left)], IDS["?"]]
        count = len(ids)
        log_probs = -np.abs(self.noise.normal(0.5, 0.4, count)).astype(np.float32)
        values = {
            "rollout_id": rollout_id,
            "sample_index": rollout_id * self.script.samples + index,
            "group_index": index // self.script.group,
            "status": "truncated" if truncated else "completed",
            "reward": float(good),
            "label": str(left + right),
            "prompt": prompt,
            "response": "".join(p for p in pieces if p != "<eos>"),
            "prompt_length": len(prompt_ids),
            "response_length": count,
            "total_length": len(prompt_ids) + count,
            "num_masked": 0,
            "weight_versions": [str(rollout_id)],
            "tokens_kept": True,
            "tokens": prompt_ids + ids,
            "loss_mask": [1] * count,
            "rollout_log_probs": log_probs.tolist(),
            "rollout_log_prob_mean": float(log_probs.mean()),
        }
        for name, value in values.items():
            rows[name].append(value)

    def log_probs(self, rollout_id: int, samples: dict[str, list]) -> Metrics:
        """Writes the logprobs stage and measures it as the engine does."""
        script = self.script
        rows: dict[str, list] = {name: [] for name in _LOGPROB_COLUMNS}
        columns: dict[str, list[np.ndarray]] = {
            name: []
            for name in (
                "log_probs",
                "ref_log_probs",
                "rollout_log_probs",
                "entropy",
            )
        }
        masks = []
        drift = script.ref_noise if rollout_id == 0 else 1e-3 * rollout_id
        for index, rollout in enumerate(samples["rollout_log_probs"]):
            theirs = np.array(rollout, np.float32)
            count = len(theirs)
            ours = theirs + self.noise.normal(0, script.rollout_noise, count)
            ours = ours.astype(np.float32)
            reference = ours + self.noise.normal(0, drift, count) if drift else ours
            reference = reference.astype(np.float32)
            entropy = np.abs(self.noise.normal(0.6, 0.2, count)).astype(np.float32)
            masks.append(np.ones(count, np.int8))
            for name, values in (
                ("log_probs", ours),
                ("ref_log_probs", reference),
                ("rollout_log_probs", theirs),
                ("entropy", entropy),
            ):
                columns[name].append(values)
            gap, away = np.abs(ours - reference), np.abs(ours - theirs)
            values = {
                "rollout_id": rollout_id,
                "sample_index": samples["sample_index"][index],
                "tokens_kept": True,
                "log_probs": ours.tolist(),
                "ref_log_probs": reference.tolist(),
                "entropy": entropy.tolist(),
                "advantages": [samples["reward"][index] - 0.5] * count,
                "normalized_reward": samples["reward"][index] - 0.5,
                "log_prob_mean": float(ours.mean()),
                "entropy_mean": float(entropy.mean()),
                "ref_unequal": int((ours != reference).sum()),
                "ref_max_abs": float(gap.max()),
                "ref_max_position": int(gap.argmax()),
                "rollout_mean_abs": float(away.mean()),
                "rollout_max_abs": float(away.max()),
                "rollout_max_position": int(away.argmax()),
                "num_nonfinite": 0,
            }
            for name, value in values.items():
                rows[name].append(value)
        write_stage(
            self.folder(rollout_id),
            StageFile.LOGPROBS,
            rows,
            metadata=self.metadata(rollout_id),
        )
        return logprob_metrics(columns, masks)

    def micro_batches(
        self, rollout_id: int, samples: dict[str, list]
    ) -> dict[str, list]:
        """Columns of the train stage."""
        count = self.script.samples
        return {
            "rollout_id": [rollout_id] * count,
            "sample_index": samples["sample_index"],
            "step_id": [0] * count,
            "rank": [0] * count,
            "micro_batch": [i // 4 for i in range(count)],
            "place": [i % 4 for i in range(count)],
            "padded_length": [32] * count,
        }

    def train_step(self, rollout_id: int) -> None:
        """One optimizer step."""
        norm = 0.412 * (0.97**rollout_id)
        self.events.append(
            TrainStep(
                rollout_id=rollout_id,
                step_id=0,
                step=rollout_id,
                metrics={
                    "train/loss": Mean(0.02 * 64, 64),
                    "train/grad_norm": Gauge(norm),
                    "train/pg_clipfrac": Mean(0.64, 64),
                    "train/ppo_kl": Mean(0.0, 64),
                },
                vacuous=("train/ppo_kl",),
            )
        )

    def verdicts(self, rollout_id: int, stage: Stage) -> None:
        """What the checks say after a stage."""
        where = Place(rollout_id=rollout_id)
        given = []
        if stage is Stage.GENERATE:
            given.append(_verdict("responses_coherent", "1", "64 of 64", where))
        if stage is Stage.LOG_PROBS and rollout_id == 0:
            given += _reference_verdicts(self.script.ref_noise, where)
        if stage is Stage.TRAIN and rollout_id == 0:
            given.append(
                _verdict("grad_norm", "3", "0.412", where, numbers={"grad_norm": 0.412})
            )
        for verdict in given:
            self.events.append(
                VerdictGiven(
                    rollout_id=rollout_id, stage=stage, verdict=verdict.to_json()
                )
            )

    def generating(self, rollout_id: int, done: int) -> LiveWriter:
        """A rollout in the middle of its generation; the caller closes the stream."""
        self.start(rollout_id, Stage.GENERATE)
        rows = self.samples(rollout_id)
        live = LiveWriter(self.folder(rollout_id), self.metadata(rollout_id))
        live.__enter__()
        first = {name: values[:done] for name, values in rows.items()}
        live.append(first)
        self.events.append(
            RolloutProgress(
                rollout_id=rollout_id,
                done=done,
                running=self.script.samples - done,
                aborted=0,
                tokens=sum(rows["response_length"][:done]),
                longest=max(rows["response_length"][:done]),
                total=self.script.samples,
            )
        )
        return live

    def pause(
        self,
        rollout_id: int,
        before: Stage,
        *,
        after: Stage | None = None,
        why: str = "command",
    ) -> None:
        """The run waits."""
        self.events.append(
            Paused(
                rollout_id=rollout_id,
                before=before,
                after=after,
                why=why,
                by="alice@login1:4242",
            )
        )

    def finish(self, rollouts: int) -> None:
        """The run is done."""
        self.events.append(RunFinished(why="done", rollouts=rollouts))


_SAMPLE_COLUMNS = (
    "rollout_id", "sample_index", "group_index", "status", "reward", "label", "prompt",
    "response", "prompt_length", "response_length", "total_length", "num_masked",
    "weight_versions", "tokens_kept", "tokens", "loss_mask", "rollout_log_probs",
    "rollout_log_prob_mean",
)  # fmt: skip
_LOGPROB_COLUMNS = (
    "rollout_id", "sample_index", "tokens_kept", "log_probs", "ref_log_probs",
    "entropy", "advantages", "normalized_reward", "log_prob_mean", "entropy_mean",
    "ref_unequal",
    "ref_max_abs", "ref_max_position", "rollout_mean_abs", "rollout_max_abs",
    "rollout_max_position", "num_nonfinite",
)  # fmt: skip


def _verdict(rule, section, summary, where, *, status=Status.PASS, numbers=None):
    return Verdict(
        rule=rule,
        section=section,
        status=status,
        summary=summary,
        where=where,
        numbers=numbers or {},
    )


def _reference_verdicts(noise, where):
    if not noise:
        return [
            _verdict(
                "log_probs_equal_ref",
                "2",
                "unequal 0 of 268 tokens",
                where,
                numbers={"unequal": 0.0, "tokens": 268.0},
            ),
            _verdict("first_step_kl", "3", "KL 0 (k3)", where, numbers={"kl": 0.0}),
            _verdict(
                "ppo_kl",
                "3",
                "one step a rollout: 0 by construction",
                where,
                status=Status.VACUOUS,
            ),
        ]
    place = Place(rollout_id=0, sample_index=5, position=17)
    return [
        Verdict(
            rule="log_probs_equal_ref",
            section="2",
            status=Status.FAIL,
            summary="unequal 260 of 268 tokens, max |Δ| 0.0032",
            where=place,
            numbers={"unequal": 260.0, "tokens": 268.0, "max_abs": 0.0032},
            causes=(
                Cause(
                    text="the reference holds other weights than the policy",
                    confidence="high",
                    confirm="compare --ref-load with --load and --hf-checkpoint",
                ),
            ),
            next_command="relax-tui show runs/x --rollout 0 --sample 5",
        ),
        _verdict(
            "first_step_kl",
            "3",
            "KL 1.2e-06",
            where,
            status=Status.FAIL,
            numbers={"kl": 1.2e-6},
        ),
    ]
