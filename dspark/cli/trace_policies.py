"""The policies that a command on a trace was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    from dspark.analysis.replay.run import check_replay
    from dspark.cli.console import stderr
    from dspark.config.build import build_policy
    from dspark.config.compose import parse_entry
    from dspark.config.policies import listed_policies

    taken = [_within(parse_entry(text), trace.depth, invocation) for text in entries]
    listed = listed_policies([entry for entry, _ in taken], invocation.search_path, "policies")
    found = {}
    for (label, node), (_, note) in zip(listed.items(), taken, strict=True):
        found[label] = build_policy(node)
        try:
            check_replay(trace, found[label], cost)
        except ValueError as error:
            raise ValueError(f"policies: {error}") from error
        if note:
            stderr().print(f"{label}: {note}", markup=False, soft_wrap=True)
    return found


def _within(entry: PolicyEntry, depth: int, invocation: Invocation) -> tuple[PolicyEntry, str | None]:
    """The entry, with the trace's depth if its YAML's is larger and none was given, and what to say then."""
    from dataclasses import replace

    from dspark.config.compose import compose_policy, given_settings

    _, node = compose_policy(entry, invocation.search_path)
    default = node.get("depth")
    if "depth" in given_settings(entry, node) or not isinstance(default, int) or default <= depth:
        return entry, None
    note = f"depth {depth}, which the trace holds, in place of its default {default}"
    return replace(entry, overrides=(*entry.overrides, f"depth={depth}")), note
