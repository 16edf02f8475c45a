"""Combinations of settings that are known to fail or to mislead.

From the debugging guide, upstream's own checks, and reports of users. Each is a
function from settings to a problem; what is not set is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from relax.triage.lint.given import Given
from relax.triage.lint.modes import MODE_COMBINATIONS
from relax.triage.lint.settings import Combination, Problem, Settings, flag, pairs
from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict


def judge_combinations(given: Iterable[Given]) -> list[Verdict]:
    """Verdicts on the combinations that were found; nothing for the others."""
    settings = Settings(given)
    verdicts = []
    for combination in COMBINATIONS:
        problem = combination.find(settings)
        if problem is None:
            continue
        verdicts.append(
            Verdict(
                rule=combination.id,
                section=combination.section,
                status=problem.status,
                summary=problem.summary,
                where=Place(rollout_id=-1),
                evidence=tuple(
                    Evidence(text=text) for text in settings.origin(*problem.names)
                ),
                causes=(
                    Cause(text=problem.why, confidence="high", confirm=problem.fix),
                ),
                next_command=problem.command,
            )
        )
    return verdicts


def _fusion(settings: Settings) -> Problem | None:
    experts = settings.number("num_experts") or settings.number("num_moe_experts")
    if not experts or settings.on("moe_permute_fusion"):
        return None
    return Problem(
        status=Status.WARN,
        summary="an MoE model without --moe-permute-fusion",
        why="the unfused path adds in a varying order: KL of the first step is not 0",
        fix="add --moe-permute-fusion",
        names=("num_experts", "num_moe_experts"),
        command="--moe-permute-fusion",
    )


def _attention(settings: Settings) -> Problem | None:
    parallel = settings.number("context_parallel_size") or 1
    if parallel < 2 or settings.get("attention_backend") == "flash":
        return None
    return Problem(
        status=Status.WARN,
        summary=f"context parallelism {parallel:.0f} without --attention-backend flash",
        why="fused attention under CP is not deterministic in some versions of"
        " Transformer Engine: log_probs and ref_log_probs differ",
        fix="add --attention-backend flash",
        names=("context_parallel_size", "attention_backend"),
        command="--attention-backend flash",
    )


def _cut_distribution(settings: Settings) -> Problem | None:
    names = ("rollout_top_p", "top_p", "rollout_top_k", "top_k")
    top_p = settings.number("rollout_top_p") or settings.number("top_p") or 1.0
    top_k = settings.number("rollout_top_k") or settings.number("top_k") or -1.0
    if top_p >= 1 and top_k <= 0:
        return None
    return Problem(
        status=Status.WARN,
        summary="top-p or top-k cuts the distribution that is sampled from",
        why="the engine's log-probs are renormalised over the cut, not the trainer's",
        fix="--rollout-top-p 1 --rollout-top-k -1 while training",
        names=names,
    )


def _temperature(settings: Settings) -> Problem | None:
    for name in ("rollout_temperature", "temperature"):
        value = settings.number(name)
        if value is None or value == 1:
            continue
        return Problem(
            status=Status.INFO if value > 0 else Status.FAIL,
            summary=f"sampling temperature {value:g}",
            why="log-probs agree only if trainer and engine both divide by it"
            if value > 0
            else "greedy sampling gives equal answers in a group: no signal",
            fix="check log_probs_vs_rollout of the first rollout: the slope must be 1",
            names=(name,),
        )
    return None


def _reference(settings: Settings) -> Problem | None:
    wants = settings.on("use_kl_loss") or bool(settings.number("kl_coef"))
    if not wants or settings.on("ref_load"):
        return None
    return Problem(
        status=Status.FAIL,
        summary="a KL term without --ref-load",
        why="there is no reference to take the KL against",
        fix="name the reference with --ref-load",
        names=("use_kl_loss", "kl_coef"),
    )


def _first_wait(settings: Settings) -> Problem | None:
    if settings.number("rollout_health_check_first_wait") != 0:
        return None
    return Problem(
        status=Status.WARN,
        summary="health checks begin at once",
        why="an engine that compiles or captures graphs answers 503 and is killed",
        fix="--rollout-health-check-first-wait 300",
        names=("rollout_health_check_first_wait",),
        command="--rollout-health-check-first-wait 300",
    )


def _one_sample(settings: Settings) -> Problem | None:
    estimator = settings.get("advantage_estimator") or "grpo"
    if settings.number("n_samples_per_prompt") != 1 or estimator not in _GROUPED:
        return None
    return Problem(
        status=Status.FAIL,
        summary=f"{estimator} with one sample a prompt: all advantages are 0",
        why="a group of one has nothing to be compared with",
        fix="--n-samples-per-prompt 8",
        names=("n_samples_per_prompt", "advantage_estimator"),
    )


_GROUPED: Final = ("grpo", "gspo", "cispo", "rloo")


def _batches(settings: Settings) -> Problem | None:
    names = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size")
    prompts, samples, batch = (settings.number(name) for name in names)
    if prompts is None or samples is None or batch is None:
        return None
    steps = settings.number("num_steps_per_rollout")
    total = prompts * samples
    fits = total % batch == 0 and (steps is None or total == batch * steps)
    if fits:
        return None
    expected = total / (steps or 1)
    return Problem(
        status=Status.FAIL,
        summary=f"{prompts:.0f} x {samples:.0f} samples do not make whole steps of"
        f" {batch:.0f}",
        why="the global batch must divide the samples of a rollout",
        fix=f"--global-batch-size {expected:.0f}",
        names=(*names, "num_steps_per_rollout"),
    )


def _checkpoint(settings: Settings) -> Problem | None:
    for name in ("load", "ref_load"):
        folder = settings.get(name)
        if not isinstance(folder, str) or not Path(folder).is_dir():
            continue
        path = Path(folder)
        if (path / "config.json").is_file():
            continue
        tracker = path / "latest_checkpointed_iteration.txt"
        if not tracker.is_file():
            missing = tracker.name
        else:
            text = tracker.read_text(errors="replace").strip()
            place = f"iter_{int(text):07d}" if text.isdecimal() else text
            if (path / place).is_dir():
                continue
            missing = f"the folder {place} that {tracker.name} names"
        return Problem(
            status=Status.FAIL,
            summary=f"{flag(name)} has no {missing}",
            why="the trainer starts from random weights, and pushes them to the engine:"
            " garbled text from the first update on",
            fix=f"ls {folder}",
            names=(name,),
        )
    return None


def _special_tokens(settings: Settings) -> Problem | None:
    for name in ("rollout_skip_special_tokens", "skip_special_tokens"):
        if settings.on(name):
            return Problem(
                status=Status.WARN,
                summary=f"{flag(name)}: tags that are special tokens leave the text",
                why="rewards and tool parsers that look for them in the text see none",
                fix="leave it off, or look for the ids",
                names=(name,),
            )
    return None


def _cross_entropy(settings: Settings) -> Problem | None:
    moe = settings.number("num_experts") or settings.number("num_moe_experts")
    if settings.get("cross_entropy_fusion_impl") != "te" or not moe:
        return None
    return Problem(
        status=Status.WARN,
        summary="--cross-entropy-fusion-impl te with an MoE model",
        why="loss was seen to diverge under it while grad_norm stays flat",
        fix="leave it away and compare",
        names=("cross_entropy_fusion_impl",),
    )


COMBINATIONS: Final = (
    Combination("moe_permute_fusion", "3", "MoE runs fuse the permutation", _fusion),
    Combination("cp_attention", "2", "context parallel runs use flash", _attention),
    Combination(
        "cut_sampling", "2", "the whole distribution is sampled", _cut_distribution
    ),
    Combination("temperature", "2", "the temperature is known", _temperature),
    Combination("special_tokens", "1", "tags stay in the text", _special_tokens),
    Combination("checkpoint_tracker", "1", "checkpoints are whole", _checkpoint),
    Combination(
        "cross_entropy_fusion", "3", "the loss kernel is trusted", _cross_entropy
    ),
    Combination(
        "two_kl_terms",
        "settings",
        "one KL term at most",
        pairs(
            "kl_coef",
            "kl_loss_coef",
            status=Status.FAIL,
            why="the KL would count twice, in the reward and in the loss",
            fix="set one of them to 0",
        ),
    ),
    Combination(
        "tis_with_rollout_logprobs",
        "settings",
        "one policy is the old one",
        pairs(
            "use_rollout_logprobs",
            "use_tis",
            status=Status.FAIL,
            why="the engine's log-probs are the old ones: nothing is to correct",
            fix="take one of them",
        ),
    ),
    Combination(
        "async_colocated",
        "settings",
        "asynchronous runs have GPUs of their own",
        pairs(
            "fully_async",
            "colocate",
            status=Status.FAIL,
            why="both sides would need the same GPUs at the same time",
            fix="take one of them",
        ),
    ),
    Combination(
        "staleness_colocated",
        "settings",
        "colocated runs are on-policy",
        pairs(
            "colocate",
            "max_staleness",
            status=Status.FAIL,
            why="the engine's memory is taken away while it still generates: an illegal"
            " access at the first prefill",
            fix="--max-staleness 0",
        ),
    ),
    Combination(
        "reference_missing", "settings", "a KL term has a reference", _reference
    ),
    Combination("health_first_wait", "SGLang", "engines may warm up", _first_wait),
    Combination("one_sample_groups", "settings", "groups have a contrast", _one_sample),
    Combination("batch_sizes", "settings", "batches make whole steps", _batches),
    *MODE_COMBINATIONS,
)


def known_ids() -> Mapping[str, str]:
    """Title by id, for lists."""
    return {
        "stop_strings": "stop_token_ids instead of string stop",
        **{combination.id: combination.title for combination in COMBINATIONS},
    }
