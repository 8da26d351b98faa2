"""Which policy can run with which drafter: refused here, before a model is loaded, or never."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from dspark.policies.base import require_depth
from dspark.types import Signal

if TYPE_CHECKING:
    from dspark.policies.base import Policy


class SignalSource(Protocol):
    """What the check asks of a drafter; a ``dspark.drafters.base.Drafter`` is one, and so is its class."""

    @property
    def signals(self) -> frozenset[Signal]:
        """What it can give."""
        ...

    @property
    def deterministic(self) -> bool:
        """True if its drafts are point masses."""
        ...

    @property
    def max_depth(self) -> int | None:
        """The deepest draft; None: any."""
        ...


def check_policy(policy: Policy, drafter: SignalSource | None, *, cost_available: bool) -> None:
    """Return if ``policy`` can run with ``drafter``.

    Whether the output would be biased depends on the verification rule too:
    ``dspark.verification.check_combination``.

    Args:
        policy: the depth policy.
        drafter: None means that nothing can be drafted.
        cost_available: the run has a cost model.

    Raises:
        ValueError: the combination is impossible.
    """
    name = _name(policy)
    require_depth(policy.max_depth, f"the max_depth of policy {name}")
    if policy.needs_cost and not cost_available:
        raise ValueError(
            f"policy {name} needs a cost model, and the run has none: `dspark profile` measures this machine "
            "for cost=profile; or set another, such as cost=linear"
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


def _name(part: object) -> str:
    """The name users know a policy or drafter by: ``BatchTable`` is batch_table."""
    kind = part if isinstance(part, type) else type(part)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
    return words.removesuffix("_drafter")
