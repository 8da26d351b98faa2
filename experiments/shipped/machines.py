"""Whose seconds a step of a replay takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.shipped.recordings import Recordings

HERE, H100 = "this machine", "8B on an H100"
H100_SOURCE = "illusion-llama3.1-8b-h100-eagle"
"""Of ``dspark.cost.published``: Llama-3.1-8B and a drafter of one pass, fitted on batches of 1 to 64."""


def costs(recorded: Recordings) -> dict[str, list[str]]:
    """Settings that choose each machine's cost model."""
    return {
        HERE: ["cost=profile", f"cost.path={recorded.profile}"],
        H100: ["cost=published", f"cost.name={H100_SOURCE}"],
    }


def slug(machine: str) -> str:
    """The machine as a part of a folder's name."""
    return machine.replace(" ", "_").lower()
