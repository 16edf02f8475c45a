"""Which metrics a configuration will measure, and conditions on others."""

import pytest

from relax.arguments import parse_arguments
from relax.arguments.arguments import replaced
from relax.arguments.metric_names import declared_metrics
from relax.arguments.pause import parse_stop_condition
from relax.errors import ArgumentError


@pytest.fixture
def arguments(words):
    return parse_arguments(words())


def check(arguments, text):
    declared_metrics(arguments).check([parse_stop_condition(text)])


@pytest.mark.parametrize(
    "text",
    [
        "grad_norm > 10",
        "train/grad_norm/attention > 3",
        "zero_std/frac > 0.9",
        "rollout/stop_reason/length/ratio > 0.5",
        "count_1.0 > 4",
        "perf/step_time > 60",
        "0:train",
        "verdict:FAIL",
    ],
)
def test_what_will_come_is_accepted(arguments, text):
    check(arguments, text)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("grad_nrom > 10", "train/grad_norm"),
        ("rollout/raw_rewards < 0", "rollout/raw_reward"),
        ("ppo_k1 > 0", "train/ppo_kl"),
        ("quite_other > 0", "relax-tui show RUN"),
    ],
)
def test_what_never_comes_is_refused_with_the_nearest(arguments, text, nearest):
    with pytest.raises(ArgumentError) as refused:
        check(arguments, text)
    assert nearest in str(refused.value)


def test_names_depend_on_what_the_run_does(arguments):
    for text, change in (
        ("kl_loss > 1", {"use_kl_loss": True}),
        ("tis > 2", {"use_tis": True}),
        ("logprob_ref/unequal > 0", {"ref_load": arguments.checkpoint.hf_checkpoint}),
        ("eval/sums < 0.1", {"eval_prompt_data": ("sums", "sums.jsonl")}),
    ):
        with pytest.raises(ArgumentError):
            check(arguments, text)
        check(replaced(arguments, **change), text)
    with pytest.raises(ArgumentError):
        check(replaced(arguments, debug_rollout_only=True), "grad_norm > 10")


def test_a_hook_of_the_users_may_add_names_until_they_were_seen(arguments):
    hooked = replaced(arguments, rollout_function_path="mine.generate")
    names = declared_metrics(hooked)
    names.check([parse_stop_condition("rollout/mine > 1")])
    assert not names.complete
