"""The engine, its lengths, and who judges what it writes."""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.flags import own_flags
from relax.arguments.foreign import BUILT_IN_REWARDS, UPSTREAM_REWARDS
from relax.arguments.validate.modes import FORGE_FUNCTION
from relax.arguments.validate.rule import Machine, Rule, broken


def _generates(arguments: Arguments) -> bool:
    """Whether responses are generated, by the function that is built in."""
    default = own_flags()["rollout_function_path"].default
    return (
        not arguments.debug.debug_train_only
        and arguments.rollout.rollout_function_path == default
    )


def embedded_takes_no_sglang(arguments: Arguments, machine: Machine) -> None:
    """SGLang's flags are for SGLang."""
    rollout = arguments.rollout
    if rollout.rollout_backend == "sglang":
        return
    for name in rollout.sglang:
        raise broken(
            arguments,
            f"sglang_{name}",
            "is a setting of SGLang, and the rollout engine is the embedded one",
            fix="use --rollout-backend sglang, or leave it away",
        )
    if rollout.sglang_python is not None:
        raise broken(
            arguments,
            "sglang_python",
            "no SGLang is started, the rollout engine is the embedded one",
            fix="use --rollout-backend sglang, or leave it away",
        )


def embedded_engine_is_float32(arguments: Arguments, machine: Machine) -> None:
    """The embedded engine computes in float32, and weights are compared bit by bit."""
    if arguments.rollout.rollout_backend != "embedded":
        return
    for flag in ("bf16", "fp16"):
        if arguments.megatron.transformer.get(flag):
            raise broken(
                arguments,
                flag,
                "the embedded rollout engine holds its weights in float32",
                fix="leave it away, or use --rollout-backend sglang",
            )


def responses_end(arguments: Arguments, machine: Machine) -> None:
    """A response has a greatest length, which the context holds."""
    rollout = arguments.rollout
    context = rollout.rollout_max_context_len
    if _generates(arguments) and rollout.rollout_max_response_len is None:
        raise broken(
            arguments,
            "rollout_max_response_len",
            "is not given, so a response might never end",
            fix="give it, or --rollout-max-context-len",
        )
    for name, length in (
        ("rollout_max_response_len", rollout.rollout_max_response_len),
        ("rollout_max_prompt_len", rollout.rollout_max_prompt_len),
    ):
        if context is not None and length is not None and length > context:
            raise broken(
                arguments,
                name,
                f"is more than --rollout-max-context-len {context}",
                fix=f"choose at most {context}",
            )


def top_k_means_something(arguments: Arguments, machine: Machine) -> None:
    """0 most likely tokens leave nothing to sample."""
    if arguments.rollout.rollout_top_k == 0:
        raise broken(
            arguments,
            "rollout_top_k",
            "there would be no token to sample",
            fix="use -1 for all, or a positive number",
        )


def prompts_are_there(arguments: Arguments, machine: Machine) -> None:
    """Generation starts from prompts."""
    if _generates(arguments) and arguments.data.prompt_data is None:
        raise broken(
            arguments,
            "prompt_data",
            "is not given, and there is nothing to answer",
            fix="give a file of prompts",
        )
    if arguments.data.num_epoch is not None and arguments.data.prompt_data is None:
        raise broken(
            arguments,
            "num_epoch",
            "there are no prompts to go through",
            fix="give --prompt-data, or --num-rollout instead",
        )


def reward_is_known(arguments: Arguments, machine: Machine) -> None:
    """The built-in rewards are a short list."""
    name = arguments.reward.rm_type
    if name is None or name in BUILT_IN_REWARDS:
        return
    known = f"use one of {', '.join(BUILT_IN_REWARDS)}, or --custom-rm-path"
    if name in UPSTREAM_REWARDS:
        problem = "this reward of upstream is not available here"
        fix = "use --custom-rm-path with a function of your own"
        raise broken(arguments, "rm_type", problem, fix=fix)
    raise broken(arguments, "rm_type", "no such reward", fix=known)


def one_judge(arguments: Arguments, machine: Machine) -> None:
    """Responses are judged by one function."""
    reward = arguments.reward
    if reward.rm_type is not None and reward.custom_rm_path is not None:
        raise broken(
            arguments,
            "rm_type",
            f"--custom-rm-path {reward.custom_rm_path} judges as well",
            fix="keep one of the two",
        )
    forged = arguments.rollout.rollout_function_path == FORGE_FUNCTION
    nobody = reward.rm_type is None and reward.custom_rm_path is None
    if _generates(arguments) and not forged and nobody:
        raise broken(
            arguments,
            "rm_type",
            "is not given, and nobody judges the responses",
            fix="give it, or --custom-rm-path",
        )


def evaluation_has_prompts(arguments: Arguments, machine: Machine) -> None:
    """Evaluation sets are pairs of name and path, and there when asked for."""
    run = arguments.run
    if run.eval_interval is not None and not run.eval_prompt_data:
        raise broken(
            arguments,
            "eval_interval",
            "there is nothing to evaluate on",
            fix="give --eval-prompt-data NAME PATH",
        )
    if len(run.eval_prompt_data) % 2:
        raise broken(
            arguments,
            "eval_prompt_data",
            "is not made of pairs",
            fix="write NAME PATH [NAME PATH ...]",
        )


RULES: Final[tuple[Rule, ...]] = (
    embedded_takes_no_sglang,
    embedded_engine_is_float32,
    responses_end,
    top_k_means_something,
    prompts_are_there,
    reward_is_known,
    one_judge,
    evaluation_has_prompts,
)
