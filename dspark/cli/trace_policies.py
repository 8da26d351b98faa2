"""The policies that a command on a trace was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cli.launch import Invocation
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy


def trace_policies(
    entries: Sequence[str], invocation: Invocation, trace: AcceptanceTrace, cost: CostModel
) -> dict[str, Policy]:
    """Policies by label.

    Args:
        entries: "NAME [VALUE] [key=value ...]" each.
        invocation: of the command.
        trace: on which they will run.
        cost: which they will be given.

    Raises:
        ValueError: an entry is wrong, or needs what the trace does not hold.
    """
    from dspark.analysis.replay.run import check_replay
    from dspark.config.build import build_policy
    from dspark.config.compose import compose_policy, parse_entry
    from dspark.config.schema import component

    found = {}
    for text in entries:
        label, node = compose_policy(parse_entry(text), invocation.search_path)
        found[label] = build_policy(component(node, f"policy {label!r}"))
        try:
            check_replay(trace, found[label], cost)
        except ValueError as error:
            raise ValueError(f"policies: {error}") from error
    return found
