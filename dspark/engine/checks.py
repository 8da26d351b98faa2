"""What is refused before anything runs: parts and requests that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.policies.check import check_policy
from dspark.verification import check_combination

if TYPE_CHECKING:
    from dspark.cost.base import CostModel
    from dspark.drafters.base import Drafter
    from dspark.models.target import HFTarget
    from dspark.policies.base import Policy
    from dspark.policies.check import SignalSource
    from dspark.types import SamplingParams
    from dspark.verification.base import Verification


def check_parts(
    target: HFTarget,
    drafter: Drafter | None,
    policy: Policy,
    verification: Verification,
    cost: CostModel | None,
) -> None:
    """Return if an engine can be built of these parts.

    Raises:
        ValueError: a missing signal, cost model or drafter, another vocabulary, or rates or blocks that
            do not reach the policy's depth.
    """
    check_policy(policy, drafter, cost_available=cost is not None)
    verification.check_depth(policy.max_depth)
    if drafter is None:
        return
    check_signals(drafter, policy, verification)
    check_block(drafter, policy)
    if drafter.vocab_size not in (None, target.vocab_size):
        raise ValueError(
            f"drafter and target must share a vocabulary, got {drafter.vocab_size} and "
            f"{target.vocab_size} entries; use a drafter of the target's family"
        )


def check_signals(drafter: SignalSource, policy: Policy, verification: Verification) -> None:
    """Return if the rule finds in a draft what it decides by.

    Raises:
        ValueError: the drafter lacks a signal of the rule, and the policy drafts.
    """
    missing = ", ".join(sorted(verification.needs - drafter.signals))
    if missing and policy.max_depth > 0:
        raise ValueError(
            f"verification {verification.name} needs the signal {missing}, which the drafter does not give: "
            "use another drafter, such as synthetic, or give verification.rates"
        )


def check_block(drafter: SignalSource, policy: Policy) -> None:
    """Return if the drafter can draft as deep as the policy may ask.

    Raises:
        ValueError: its blocks are shorter.
    """
    longest = drafter.max_depth
    if longest is not None and policy.max_depth > longest:
        raise ValueError(
            f"the policy may draft up to {policy.max_depth} tokens, and the drafter's blocks have {longest}: "
            f"set a depth of at most {longest}, or drafter.block_length, which changes what it drafts"
        )


def check_sampling(
    params: SamplingParams, drafter: Drafter | None, policy: Policy, verification: Verification
) -> None:
    """Return if a request with these parameters can be served without bias.

    Raises:
        ValueError: the rule refuses the parameters, or the policy would bias the samples (class D).
    """
    verification.check_params(params)
    check_combination(
        policy,
        verification,
        deterministic_drafter=drafter is None or drafter.deterministic,
        all_greedy=params.temperature == 0,
    )
