"""Every number a rule holds something against, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit and the reason for it.

    Attributes:
        value: The limit.
        source: Where it comes from, in one sentence.
    """

    value: float
    source: str


FIRST_STEP_KL = Threshold(
    1e-8, "slime's first-step check in CI, for logs that carry only a mean"
)
PPO_KL = {
    "float32": Threshold(
        1e-6, "measured: another padded length moves a log-prob by up to 9.5e-7"
    ),
    "bfloat16": Threshold(1e-3, "the same, by the ratio of the precisions' epsilons"),
}
KERNEL_NOISE = {
    "float32": Threshold(1e-4, "healthy log-prob noise is 1e-6 to 1e-4 in float32"),
    "bfloat16": Threshold(0.05, "bfloat16 keeps 8 bits; logits of 10 move by 0.04"),
}
ENTROPY_GAP_SIGMAS = Threshold(
    6.0, "one false alarm in 5e8 healthy rollouts for a normal mean; tails need room"
)
ENTROPY_GAP_NATS = Threshold(
    0.05, "judgement: twice the engine-trainer bias accepted in bfloat16"
)
LOG_PROB_MAGNITUDE = Threshold(1.0, "debugging guide, check 2: log-probs above 1")
ENTROPY_GAP_TOKENS = Threshold(
    64, "judgement: below, the sampling error is no estimate"
)
FIRST_GRAD_NORM_WARN = Threshold(
    10.0, "judgement: ten times Megatron's default --clip-grad 1.0"
)
FIRST_GRAD_NORM_FAIL = Threshold(
    100.0, "judgement: a hundred times Megatron's default --clip-grad 1.0"
)
ENGINE_DIFFERENCE_WARN = {
    "float32": Threshold(1e-4, "measured on CPU: healthy mean 3e-6, max 2e-5"),
    "bfloat16": Threshold(0.05, "between miles' 0.03 on means and slime's 0.1"),
}
ENGINE_DIFFERENCE_FAIL = {
    "float32": Threshold(1e-3, "300 times the healthy mean measured on CPU"),
    "bfloat16": Threshold(0.1, "slime's CI limit on train_rollout_logprob_abs_diff"),
}
SLOPE_DEVIATION = Threshold(
    0.01, "judgement: a fifth of the smallest temperature step anyone sets by hand"
)
SLOPE_SCATTER_RATIO = Threshold(
    0.5, "simulated: temperatures 0.7 to 0.95 give 0.9 to 1.3, noise at most 0.22"
)
SLOPE_CORRELATION = Threshold(0.9, "judgement: below, the points are not a line")
SHIFT_RATIO = Threshold(
    0.1, "judgement: one position over, the mean difference must shrink tenfold"
)
GARBLED_LOG_PROB = Threshold(
    0.8, "share of -ln V: sampling from noise gives 1.0, fluent text at most 0.35"
)
IMPLAUSIBLE_LOG_PROB = Threshold(
    0.35, "share of -ln V: SmolLM2-135M at temperature 1 has 2.03 nats, 0.19 of ln V"
)
GARBLED_TOKENS = Threshold(16, "judgement: fewer tokens give no mean")
GARBLED_POOLED_LOG_PROB = Threshold(
    0.6,
    source="over all tokens of a rollout: healthy models lie at 0.03 (a tuned one of "
    "0.8 M parameters) to 0.19 (SmolLM2-135M at temperature 1), one with reversed "
    "projections at 0.74, noise at 1",
)
GARBLED_POOLED_TOKENS = Threshold(64, "judgement: short answers are judged together")
REPLACEMENT_DECISIVE = Threshold(0.3, "judgement: no text of any language has it")
REPLACEMENT_SIGN = Threshold(0.02, "judgement: more than a few split emoji")
CONTROL_SIGN = Threshold(0.02, "judgement: text holds none but tab and newline")
MIXED_SCRIPT_SIGN = Threshold(0.2, "judgement: every fifth word joins alien scripts")
MIXED_SCRIPT_WORDS = Threshold(5, "judgement: fewer words give no share")
ONE_TOKEN_SHARE = Threshold(0.9, "NaN logits give one id throughout, often '!'")
GARBLED_SAMPLES_FAIL = Threshold(0.5, "judgement: most samples")
GARBLED_SAMPLES_WARN = Threshold(0.1, "judgement: more than stray samples")
FAILED_SAMPLES_WARN = Threshold(0.05, "judgement: more than stray time-outs")
FAILED_SAMPLES_FAIL = Threshold(
    0.25, "judgement: most groups lose members, so their baselines shift"
)
LOOP_NGRAM_SHARE = Threshold(0.8, "judgement: tables and code stay below 0.6")
LOOP_TOKENS = Threshold(64, "judgement: shorter answers repeat by nature")
REPETITION_WARN = Threshold(0.1, "judgement: more than stray samples")
REPETITION_FAIL = Threshold(0.5, "judgement: most samples, and training has begun")


def for_precision(table: dict[str, Threshold], precision: str | None) -> Threshold:
    """The limit for a precision; the lenient one where the precision is unknown."""
    return table["float32" if precision == "float32" else "bfloat16"]
