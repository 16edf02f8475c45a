"""Advantages and the policy loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relax.arguments.flag import ABOVE_ZERO, NON_NEGATIVE, Bounds, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSettings:
    """What is optimized."""

    advantage_estimator: str = field(
        default="grpo",
        metadata=flag(
            "How rewards become advantages: grpo, gspo, cispo, rloo,"
            " reinforce_plus_plus, reinforce_plus_plus_baseline."
        ),
    )
    eps_clip: float = field(
        default=0.2, metadata=flag("Lower clip of the ratio.", bounds=NON_NEGATIVE)
    )
    eps_clip_high: float = field(
        default=0.2,
        metadata=flag(
            "Upper clip of the ratio.", bounds=NON_NEGATIVE, derived="--eps-clip"
        ),
    )
    kl_coef: float = field(
        default=0.0,
        metadata=flag("Weight of the KL term in rewards (reinforce_plus_plus)."),
    )
    gamma: float = field(
        default=1.0,
        metadata=flag(
            "Discount of later rewards (reinforce_plus_plus).", bounds=Bounds(0, 1)
        ),
    )
    use_kl_loss: bool = field(
        default=False, metadata=flag("Add the KL to the reference to the loss.")
    )
    kl_loss_coef: float = field(default=0.0, metadata=flag("Weight of the KL loss."))
    kl_loss_type: Literal["k1", "k2", "k3", "low_var_kl"] = field(
        default="k1", metadata=flag("Estimator of the KL.")
    )
    use_unbiased_kl: bool = field(
        default=False, metadata=flag("Weigh the KL estimate by the importance ratio.")
    )
    entropy_coef: float = field(
        default=0.0, metadata=flag("Weight of the entropy bonus.")
    )
    grpo_std_normalization: bool = field(
        default=True,
        metadata=flag(
            "Divide a group's rewards by their standard deviation"
            " (upstream: --disable-grpo-std-normalization)."
        ),
    )
    rewards_normalization: bool = field(
        default=True,
        metadata=flag(
            "Subtract the group's mean (upstream: --disable-rewards-normalization)."
        ),
    )
    normalize_advantages: bool = field(
        default=False, metadata=flag("Whiten advantages over all tokens of a rollout.")
    )
    use_rollout_logprobs: bool = field(
        default=False,
        metadata=flag("Take the engine's log-probs as the old ones in the ratio."),
    )
    use_tis: bool = field(
        default=False,
        metadata=flag("Correct for the engine by truncated importance sampling."),
    )
    tis_clip: float = field(
        default=2.0, metadata=flag("Upper truncation of TIS.", bounds=ABOVE_ZERO)
    )
    tis_clip_low: float = field(
        default=0.0, metadata=flag("Lower truncation of TIS.", bounds=NON_NEGATIVE)
    )
