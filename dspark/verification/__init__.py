"""Verification rules: which drafted tokens are kept, and which token follows them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from dspark.types import LosslessClass
from dspark.verification.base import SampledRow, Verification
from dspark.verification.coupled import Coupled
from dspark.verification.greedy import Greedy
from dspark.verification.rejection import Block, Rejection
from dspark.verification.synthetic import SyntheticAcceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.policies.base import Policy

__all__ = [
    "VERIFICATIONS",
    "Block",
    "Coupled",
    "Greedy",
    "Rejection",
    "SampledRow",
    "SyntheticAcceptance",
    "Verification",
    "build_verification",
    "check_combination",
]

VERIFICATIONS: dict[str, type[Verification]] = {
    rule.name: rule for rule in (Rejection, Block, Coupled, Greedy, SyntheticAcceptance)
}
"""Every rule by its name."""


def build_verification(name: str, *, rates: Sequence[float] | None = None) -> Verification:
    """The rule of that name; ``rates`` belong to 'synthetic' alone.

    Raises:
        ValueError: there is no such rule, or it takes no rates.
    """
    if name not in VERIFICATIONS:
        close = get_close_matches(name, VERIFICATIONS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown verification {name!r}: {hint}choose one of {', '.join(VERIFICATIONS)}")
    if name == SyntheticAcceptance.name:
        return SyntheticAcceptance(None if rates is None else tuple(rates))
    if rates is not None:
        raise ValueError(
            f"verification {name!r} decides by the models' probabilities and takes no rates, got "
            f"{list(rates)}: leave rates null, or use verification 'synthetic'"
        )
    return VERIFICATIONS[name]()


def check_combination(
    policy: Policy, verification: Verification, *, deterministic_drafter: bool, all_greedy: bool
) -> None:
    """Nothing, if the policy's depths leave the output law of this rule alone.

    Raises:
        ValueError: the policy drops drafts by the token drawn, and the rule would be biased by it.
    """
    if policy.lossless_class is not LosslessClass.SAMPLED or not verification.lossless:
        return
    if verification.unbiased_for_class_d or deterministic_drafter or all_greedy:
        return
    raise ValueError(
        f"policy {type(policy).__name__} drops a draft by the token that was drawn (class D), which is "
        f"biased under verification {verification.name!r}: a dropped token is redrawn although nothing "
        "rejected it, so the output leans to the tokens that are kept; use verification 'coupled', "
        "temperature 0 for all requests, or a drafter that does not sample"
    )
