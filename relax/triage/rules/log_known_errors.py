"""Errors whose one line has one known meaning: a table, each row a rule of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relax.triage.log_evidence import LogEvidence, place
from relax.triage.log_rule import LogRule
from relax.triage.rule import Finding
from relax.triage.verdict import Cause, Confidence, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A line and its meaning.

    Attributes:
        unless: An argument that, when it is off, makes the meaning doubtful; '' none.
    """

    id: str
    mark: str
    title: str
    summary: str
    cause: str
    confirm: str
    confidence: Confidence = "high"
    status: Status = Status.FAIL
    unless: str = ""


_KNOWN = (
    _Known(
        id="context_exceeded",
        mark="context_length",
        title="requests fit the context",
        summary="a request exceeds the model's context",
        cause="a resumed sample asks for its full budget again (partial rollout), or a"
        " prompt is too long",
        confirm="budget = max response length - tokens generated before the abort",
        confidence="medium",
    ),
    _Known(
        id="scorer_thread",
        mark="signal_thread",
        title="scorers run where they can",
        summary="a scorer uses signal.alarm outside the main thread: it fails silently",
        cause="the verifier's timeout raises in Ray workers, and its handler returns 0",
        confirm="score one right answer in the main thread; use a subprocess's timeout",
    ),
    _Known(
        id="cuda_tensor_leaked",
        mark="cuda_metric",
        title="metrics leave workers as numbers",
        summary="a CUDA tensor went to a process without CUDA",
        cause="a metric or result was returned as a CUDA tensor; CUDA is not to be"
        " installed on the driver",
        confirm="float(x) or .cpu() before it is returned",
    ),
    _Known(
        id="trainer_groups_missing",
        mark="trainer_groups",
        title="nothing asks for groups of a trainer that is off",
        summary="code asks for trainer groups that do not exist",
        cause="the trainer is off (--debug-rollout-only) and a code path needs it",
        confirm="the traceback's last line of your own code",
        unless="debug_rollout_only",
    ),
    _Known(
        id="replay_gpus_unset",
        mark="no_rollout_gpus",
        title="a replay does not count rollout GPUs",
        summary="rollout construction met an unset number of GPUs",
        cause="a replay (--load-debug-rollout-data) leaves rollout_num_gpus unset and"
        " this version constructs the rollout anyway",
        confirm="set --rollout-num-gpus; or a newer version",
        confidence="medium",
    ),
    _Known(
        id="model_arguments_differ",
        mark="rotary_base",
        title="model arguments are the checkpoint's",
        summary="rotary base of the arguments differs from the checkpoint",
        cause="the model's argument script is another model's; or the value lies in"
        " rope_parameters, where the check does not look",
        confirm="rope_theta, or rope_parameters.rope_theta, in config.json",
        confidence="medium",
    ),
    _Known(
        id="overflow_asserted",
        mark="overflow_assert",
        title="a skipped fp16 step is no error",
        summary="an overflow step was asserted against",
        cause="skipping a step on overflow is normal in fp16; the assertion is wrong",
        confirm="--bf16, or leave the assertion out",
    ),
    _Known(
        id="dump_has_classes",
        mark="dump_class",
        title="dumps hold plain data",
        summary="a dump holds a class that is not loaded safely",
        cause="an object of the project was pickled into it; torch now loads data only",
        confirm="relax-tui dumps show FILE reads what is data without running it",
    ),
    _Known(
        id="dump_cut_short",
        mark="dump_truncated",
        title="dumps are whole",
        summary="a dump or checkpoint was cut short",
        cause="the disk was full, or the writer was killed",
        confirm="relax-tui dumps verify FOLDER; df -h",
    ),
    _Known(
        id="forge_fell_back",
        mark="forge_fallback",
        title="each step replays its own dump",
        summary="a step replayed dump 0, because its own is missing",
        cause="the template has no file for this rollout",
        confirm="relax-tui dumps ls FOLDER",
        status=Status.WARN,
    ),
    _Known(
        id="gradients_overflowed",
        mark="gradient_inf",
        title="gradients are finite",
        summary="gradients were not finite: the step was skipped",
        cause="overflow or NaN in the loss; in fp16 now and then it is normal",
        confirm="train/grad_norm over the steps; replay the step in float32",
        confidence="medium",
        status=Status.WARN,
    ),
    _Known(
        id="step_without_tokens",
        mark="no_signal",
        title="every step has tokens to train on",
        summary="a step had no token to train on",
        cause="all samples of a rank or step are masked or filtered",
        confirm="loss_mask sums by rank in the train dump",
        status=Status.WARN,
    ),
    _Known(
        id="data_stalled",
        mark="data_wait",
        title="the rollout keeps up",
        summary="the trainer waits for samples that do not come",
        cause="one sample never ends, or its status update was lost",
        confirm="the sample that runs longest; stacks of the rollout process",
        confidence="medium",
    ),
)


def _judge_by(known: _Known) -> Callable[[LogEvidence], Finding | None]:
    def judge(evidence: LogEvidence) -> Finding | None:
        lines = evidence.of(known.mark)
        if not lines:
            return None
        doubtful = bool(known.unless) and not evidence.arguments.get(known.unless)
        cause = Cause(
            text=known.cause,
            confidence="low" if doubtful else known.confidence,
            confirm=known.confirm,
        )
        count = evidence.count(known.mark)
        times = f", {count} times" if count > 1 else ""
        return Finding(
            status=known.status,
            summary=f"{known.summary}{times}",
            numbers={"lines": float(count)},
            where=place(lines[0]),
            evidence=evidence.shown(lines, most=2),
            causes=(cause,),
            next_command=evidence.look_command(lines[0]),
        )

    return judge


RULES = tuple(
    LogRule(
        id=known.id,
        section="runtime",
        title=known.title,
        marks=(known.mark,),
        judge=_judge_by(known),
    )
    for known in _KNOWN
)
