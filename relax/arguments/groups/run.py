"""The run folder, its record, and where it stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relax.arguments.flag import ABOVE_ZERO, NON_NEGATIVE, POSITIVE, ValueKind, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run as a person sees it."""

    run_dir: Path | None = field(
        default=None,
        metadata=flag(
            "Run folder; without it ./runs/<name>-<short id>.",
            ours=True,
            kind=ValueKind.PATH,
        ),
    )
    run_name: str = field(
        default="run",
        metadata=flag(
            "Name of the run.", ours=True, derived="the folder name of --hf-checkpoint"
        ),
    )
    walk: bool = field(
        default=False,
        metadata=flag("Stop at each check that is due in rollout 0.", ours=True),
    )
    pause_at: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "Where to pause: start, R:STAGE, 'grad_norm > 10' or verdict:FAIL"
            " (may be repeated).",
            ours=True,
            kind=ValueKind.REPEATED,
        ),
    )
    pause_limit: float | None = field(
        default=None,
        metadata=flag(
            "Seconds after which a pause ends by itself; without it, never.",
            ours=True,
            bounds=ABOVE_ZERO,
        ),
    )
    no_control: bool = field(
        default=False, metadata=flag("Open no control socket.", ours=True)
    )
    observe: bool = field(
        default=True,
        metadata=flag("Write step records and measure log-probs.", ours=True),
    )
    observe_every: int = field(
        default=1,
        metadata=flag(
            "Observe only every Nth rollout; the others run unobserved.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    keep_weights: int = field(
        default=1,
        metadata=flag(
            "Earlier weight versions kept on the host for replays.",
            ours=True,
            bounds=NON_NEGATIVE,
        ),
    )
    keep_weights_bytes: int = field(
        default=8 * 1024 * 1024 * 1024,
        metadata=flag(
            "Bytes that these weights may take on the host, on each rank.",
            ours=True,
            bounds=POSITIVE,
        ),
    )
    record_samples: int = field(
        default=64,
        metadata=flag(
            "Samples of a rollout whose token columns are recorded.",
            ours=True,
            bounds=NON_NEGATIVE,
        ),
    )
    eval_interval: int | None = field(
        default=None,
        metadata=flag("Rollouts between two evaluations.", bounds=POSITIVE),
    )
    skip_eval_before_train: bool = field(
        default=False, metadata=flag("Do not evaluate before the first rollout.")
    )
    eval_prompt_data: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "Evaluation sets: name path [name path ...].", kind=ValueKind.NAMED_PATHS
        ),
    )
