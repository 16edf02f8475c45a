"""The estimator, the KL terms and the importance ratios."""

from __future__ import annotations

from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.foreign import ESTIMATORS, ESTIMATORS_NOT_YET
from relax.arguments.validate.rule import Machine, Rule, broken


def estimator_is_built(arguments: Arguments, machine: Machine) -> None:
    """Upstream's estimators that are not are named as not yet."""
    name = arguments.algorithm.advantage_estimator
    if name in ESTIMATORS:
        return
    problem = "no such estimator"
    if name in ESTIMATORS_NOT_YET:
        problem = f"is not built yet ({', '.join(ESTIMATORS_NOT_YET)} are not)"
    raise broken(
        arguments, "advantage_estimator", problem, fix=f"use {' or '.join(ESTIMATORS)}"
    )


def returns_are_whitened(arguments: Arguments, machine: Machine) -> None:
    """REINFORCE++ has no other normalisation than that of the whole rollout."""
    algorithm = arguments.algorithm
    name = algorithm.advantage_estimator
    if name.startswith("reinforce_plus_plus") and not algorithm.normalize_advantages:
        raise broken(
            arguments,
            "advantage_estimator",
            "its advantages are not normalised",
            fix="add --normalize-advantages",
        )


def leave_one_out_has_others(arguments: Arguments, machine: Machine) -> None:
    """RLOO's baseline needs other samples, and nothing that undoes it."""
    algorithm = arguments.algorithm
    if algorithm.advantage_estimator != "rloo":
        return
    if arguments.batch.n_samples_per_prompt < 2:
        raise broken(
            arguments,
            "n_samples_per_prompt",
            "leaves rloo no other samples to compare with",
            fix="give at least 2",
        )
    if not algorithm.rewards_normalization:
        raise broken(
            arguments,
            "rewards_normalization",
            "takes rloo's baseline away",
            fix="leave it away, or choose another --advantage-estimator",
        )
    if algorithm.normalize_advantages:
        raise broken(
            arguments,
            "normalize_advantages",
            "whitens again what rloo has compared within groups",
            fix="leave it away, or choose another --advantage-estimator",
        )


def only_token_returns_hold_kl(arguments: Arguments, machine: Machine) -> None:
    """KL in rewards, and their discount, reach the loss by token returns only."""
    algorithm = arguments.algorithm
    if algorithm.advantage_estimator == "reinforce_plus_plus":
        return
    for name, innocent, instead in (
        ("kl_coef", 0.0, "use --use-kl-loss with --kl-loss-coef"),
        ("gamma", 1.0, "leave it away"),
    ):
        if arguments.values()[name] != innocent:
            raise broken(
                arguments,
                name,
                f"has no effect with {algorithm.advantage_estimator}",
                fix=f"{instead}, or choose reinforce_plus_plus",
            )


def one_kl(arguments: Arguments, machine: Machine) -> None:
    """KL goes into rewards or into the loss, not both."""
    algorithm = arguments.algorithm
    if algorithm.kl_coef != 0 and algorithm.kl_loss_coef != 0:
        raise broken(
            arguments,
            "kl_coef",
            f"--kl-loss-coef {algorithm.kl_loss_coef} counts the KL a second time",
            fix="set one of the two to 0",
        )


def kl_loss_is_on(arguments: Arguments, machine: Machine) -> None:
    """A weight of the KL loss without the KL loss does nothing."""
    algorithm = arguments.algorithm
    if algorithm.kl_loss_coef != 0 and not algorithm.use_kl_loss:
        raise broken(
            arguments,
            "kl_loss_coef",
            "has no effect without --use-kl-loss",
            fix="add --use-kl-loss, or leave it away",
        )
    if algorithm.use_unbiased_kl and not algorithm.use_kl_loss:
        raise broken(
            arguments,
            "use_unbiased_kl",
            "has no effect without --use-kl-loss",
            fix="add --use-kl-loss, or leave it away",
        )


def kl_has_reference(arguments: Arguments, machine: Machine) -> None:
    """Every KL term needs reference weights."""
    algorithm = arguments.algorithm
    if arguments.debug.debug_rollout_only or arguments.checkpoint.ref_load is not None:
        return
    for name, used in (
        ("use_kl_loss", algorithm.use_kl_loss),
        ("kl_coef", algorithm.kl_coef != 0),
    ):
        if used:
            raise broken(
                arguments,
                name,
                "there is no reference model to compare with",
                fix="give its checkpoint by --ref-load",
            )


def one_correction(arguments: Arguments, machine: Machine) -> None:
    """TIS corrects what the use of the engine's log-probs does not have."""
    algorithm = arguments.algorithm
    if algorithm.use_rollout_logprobs and algorithm.use_tis:
        raise broken(
            arguments,
            "use_tis",
            "cannot be combined with --use-rollout-logprobs",
            fix="keep one of the two",
        )


def tis_bounds_are_ordered(arguments: Arguments, machine: Machine) -> None:
    """The lower truncation lies below the upper one."""
    algorithm = arguments.algorithm
    if algorithm.tis_clip_low > algorithm.tis_clip:
        raise broken(
            arguments,
            "tis_clip_low",
            f"lies above --tis-clip {algorithm.tis_clip}",
            fix="choose a lower one",
        )


RULES: Final[tuple[Rule, ...]] = (
    estimator_is_built,
    returns_are_whitened,
    leave_one_out_has_others,
    one_kl,
    kl_loss_is_on,
    kl_has_reference,
    only_token_returns_hold_kl,
    one_correction,
    tis_bounds_are_ordered,
)
