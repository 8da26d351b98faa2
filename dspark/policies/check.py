"""Which policy can run with which drafter: refused here, before a model is loaded, or never."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from dspark.policies.base import require_depth
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from dspark.policies.base import Policy


class SignalSource(Protocol):
    """What the check asks of a drafter; a ``dspark.drafters.base.Drafter`` is one, and so is its class."""

    signals: frozenset[Signal]
    deterministic: bool


def check_policy(
    policy: Policy, drafter: SignalSource | None, *, cost_available: bool, any_length_exact: bool = False
) -> None:
    """Return if ``policy`` can run with ``drafter``.

    Args:
        policy: the depth policy.
        drafter: None means that nothing can be drafted.
        cost_available: the run has a cost model.
        any_length_exact: the verification rule leaves the output alone whatever looked at the draft
            before cutting it (coupled, greedy). A deterministic drafter has the same effect
            (class E): its tokens are no samples.

    Raises:
        ValueError: the combination is impossible, or would bias the output (class D).
    """
    name = _name(policy)
    require_depth(policy.max_depth, f"the max_depth of policy {name}")
    if policy.needs_cost and not cost_available:
        raise ValueError(
            f"policy {name} needs a cost model, and the run has none: set one, such as cost=linear"
        )
    if drafter is None:
        if policy.max_depth > 0:
            raise ValueError(
                f"policy {name} drafts up to {policy.max_depth} tokens, and the run has no drafter:"
                " choose one, or depth 0"
            )
        return
    missing = ", ".join(sorted(policy.needs - drafter.signals - {Signal.DIVERGENCE}))
    if missing:
        given = ", ".join(sorted(drafter.signals)) or "none"
        raise ValueError(
            f"policy {name} needs the signal {missing}, which the drafter {_name(drafter)} does not give;"
            f" it gives {given}"
        )
    biased = policy.lossless_class is LosslessClass.SAMPLED
    if biased and not (drafter.deterministic or any_length_exact):
        looks_at = ", ".join(sorted(policy.needs))
        raise ValueError(
            f"policy {name} drops a token because of that token ({looks_at}), which biases the samples of"
            f" drafter {_name(drafter)} (class D): use a signal that precedes the token, stop after it, or"
            " verify with coupled"
        )


def _name(part: object) -> str:
    """The name users know a policy or drafter by: ``BatchTable`` is batch_table."""
    kind = part if isinstance(part, type) else type(part)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
    return words.removesuffix("_drafter")
