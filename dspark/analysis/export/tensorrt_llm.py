"""TensorRT-LLM's draft length by batch size, for ``speculative_config`` of its YAML file.

The keys of ``draft_len_schedule`` are the largest batch size of each depth: ``{4: 4, 8: 2}`` is 4
tokens up to batch size 4, 2 up to 8, none past it. Rules: keys >= 1, values >= 0, the smallest
key's value is ``max_draft_len``, and none is larger; ``max_draft_len`` must be > 0
(https://github.com/NVIDIA/TensorRT-LLM/pull/10860,
https://github.com/NVIDIA/TensorRT-LLM/pull/12262).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.analysis.schedule import Schedule


def speculative_config(schedule: Schedule) -> dict[str, Any]:
    """``max_draft_len`` and ``draft_len_schedule``, the latter by whole numbers, ascending.

    Raises:
        ValueError: no batch size drafts, or a larger one drafts deeper than the smallest.
    """
    ranges = schedule.merged().depths
    low, high, first = ranges[0]
    if schedule.max_depth == 0:
        raise ValueError(
            "TensorRT-LLM needs max_draft_len > 0, and every depth of the schedule is 0: "
            "serve without speculative_config"
        )
    if first < schedule.max_depth:
        deeper = next(entry for entry in ranges if entry[2] == schedule.max_depth)
        raise ValueError(
            "TensorRT-LLM needs the largest depth at the smallest batch sizes (it must equal max_draft_len), "
            f"got {first} in {[low, high, first]} and {deeper[2]} in {list(deeper)}: "
            "raise the first range's depth"
        )
    return {"max_draft_len": first, "draft_len_schedule": {high: depth for _, high, depth in ranges}}


def to_yaml(config: Mapping[str, Any]) -> str:
    """The lines of the YAML file; JSON would make texts of the batch sizes."""
    pairs = ", ".join(f"{size}: {depth}" for size, depth in config["draft_len_schedule"].items())
    return (
        "speculative_config:\n"
        f"  max_draft_len: {config['max_draft_len']}\n"
        f"  draft_len_schedule: {{{pairs}}}\n"
    )


def notes(schedule: Schedule) -> list[str]:
    """What to know beside the lines, a line each."""
    _, last, depth = schedule.depths[-1]
    found = ["add decoding_type and the drafter to speculative_config"]
    if depth > 0:
        found.append(
            f"past batch size {last} TensorRT-LLM drafts nothing; the schedule ends with depth {depth}"
        )
    return found
