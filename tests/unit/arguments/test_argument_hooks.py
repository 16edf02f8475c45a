import sys
import textwrap

import pytest

from relax.arguments import check_hooks, parse_arguments
from relax.errors import ArgumentError

MODULE = """
async def reward(args, sample, **kwargs): return 1.0
async def reward_of_group(args, samples, **kwargs): return [1.0]
def plain_reward(args, sample): return 1.0
async def narrow(args): return 1.0
def rollout(args, rollout_id, data_source, data_system_client, evaluation=False): ...
def old_rollout(args, rollout_id, data_buffer, evaluation=False): ...
async def generate(args, sample, sampling_params): return sample
def plain_generate(args, sample, sampling_params): return sample
number = 3
class Judge:
    async def __call__(self, args, sample): return 1.0
judge = Judge()
"""


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    (tmp_path / "hooks_for_a_test.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "broken_hooks_for_a_test.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "hooks_for_a_test"
    sys.modules.pop("hooks_for_a_test", None)


def checked(words, given, **options):
    base = "--rollout-function-path hooks_for_a_test.rollout "
    check_hooks(parse_arguments(words(base + given, **options)))


@pytest.mark.parametrize("name", ["reward", "plain_reward", "judge"])
def test_rewards_that_fit(words, hooks, name):
    checked(words, f"--custom-rm-path {hooks}.{name}", without=("--rm-type",))


def test_a_group_reward_fits(words, hooks):
    given = f"--group-rm --custom-rm-path {hooks}.reward_of_group"
    checked(words, given, without=("--rm-type",))


def test_a_generate_function_fits(words, hooks):
    checked(words, f"--custom-generate-function-path {hooks}.generate")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--custom-rm-path {}.narrow", "async def fn(args, sample, **kwargs)"),
        ("--custom-generate-function-path {}.plain_generate", "not an async function"),
        ("--custom-rm-path {}.absent", "has no absent"),
        ("--custom-rm-path {}.number", "not a function"),
        ("--custom-rm-path reward", "package.module.function"),
        ("--custom-rm-path nowhere_at_all.reward", "ModuleNotFoundError"),
        ("--custom-rm-path broken_{}.reward", "nothing_of_this_name"),
        (
            "--eval-function-path {}.old_rollout",
            "fn(args, rollout_id, data_source, data_system_client, evaluation=False)",
        ),
        ("--custom-generate-function-path {}.narrow", "sampling_params"),
    ],
)
def test_hooks_that_do_not_fit(words, hooks, given, says):
    without = ("--rm-type",) if "rm-path" in given else ()
    with pytest.raises(ArgumentError) as caught:
        checked(words, given.format(hooks), without=without)
    assert says in str(caught.value)
    assert given.split()[0] in str(caught.value)
