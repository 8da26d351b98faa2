"""The policies that a command on a trace was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cli.launch import Invocation
    from dspark.config.compose import PolicyEntry
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy


def trace_policies(
    entries: Sequence[str], invocation: Invocation, trace: AcceptanceTrace, cost: CostModel
) -> dict[str, Policy]:
    """Policies by label.

    A depth that nobody asked for, the one in a policy's YAML, becomes the trace's where it is larger; this
    is said on stderr, and the label says the depth. A depth in the entry stays what it is.

    Args:
        entries: "NAME [VALUE] [key=value ...]" each.
        invocation: of the command.
        trace: on which they will run.
        cost: which they will be given.

    Raises:
        ValueError: an entry is wrong, or needs what the trace does not hold.
    """
    from dataclasses import replace

    from dspark.analysis.replay.run import check_replay
    from dspark.cli.console import stderr
    from dspark.config.build import build_policy
    from dspark.config.compose import compose_policy, parse_entry
    from dspark.config.schema import component

    found = {}
    for text in entries:
        entry = parse_entry(text)
        label, node = compose_policy(entry, invocation.search_path)
        note = None
        if _is_default_too_deep(entry, node, trace.depth):
            note = f"depth {trace.depth}, which the trace holds, in place of its default {node['depth']}"
            entry = replace(entry, overrides=(*entry.overrides, f"depth={trace.depth}"))
            label, node = compose_policy(entry, invocation.search_path)
        if label in found:
            raise ValueError(f"policies lists {label!r} twice: leave one out")
        found[label] = build_policy(component(node, f"policy {label!r}"))
        try:
            check_replay(trace, found[label], cost)
        except ValueError as error:
            raise ValueError(f"policies: {error}") from error
        if note:
            stderr().print(f"{label}: {note}", markup=False, soft_wrap=True)
    return found


def _is_default_too_deep(entry: PolicyEntry, node: Mapping[str, Any], depth: int) -> bool:
    """True where the node's depth is its YAML's and the trace holds less."""
    settings = [key for key in node if key != "_target_"]
    given = {override.partition("=")[0] for override in entry.overrides}
    if entry.value is not None:
        given.add(settings[0])
    default = node.get("depth")
    return "depth" not in given and isinstance(default, int) and default > depth
