"""The policies that a command lists, by the labels that its tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.config.compose import compose_policy
from dspark.config.schema import component

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dspark.config.compose import PolicyEntry
    from dspark.config.schema import Component


def listed_policies(
    entries: Iterable[PolicyEntry], search_path: Sequence[str], setting: str
) -> dict[str, Component]:
    """Components by label, in order, out of Hydra's present search path.

    Args:
        entries: options and overrides.
        search_path: Hydra overrides that extend the search path.
        setting: that lists them, for the message.

    Raises:
        ValueError: an entry is wrong, or two entries are the same policy.
    """
    found: dict[str, Component] = {}
    for entry in entries:
        label, node = compose_policy(entry, search_path)
        if label in found:
            raise ValueError(f"{setting} lists the policy {label!r} twice: leave one out")
        found[label] = component(node, f"policy {label!r}")
    return found
