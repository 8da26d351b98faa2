"""vLLM's dynamic speculative decoding: the value of ``--speculative-config``.

The table ``num_speculative_tokens_per_batch_size`` is a list of ``[first batch size, last batch
size, K]`` with both ends included, and vLLM's rules for it are: not empty, batch sizes >= 1, first
<= last, K >= 0, no overlap, the first range starts at 1. A batch size in a gap or past the end has
the K of the range before it. ``num_speculative_tokens``, the largest K there may be, must be >= 1
(https://github.com/vllm-project/vllm/pull/32374,
https://docs.vllm.ai/en/v0.25.0/features/speculative_decoding/dynamic_speculative_decoding/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dspark.analysis.schedule import Schedule

Method = Literal["dflash", "draft_model", "dspark", "eagle", "eagle3", "mtp", "ngram"]
"""Of vLLM's methods, those that draft a number of tokens that can be set."""

TESTED = ("dflash", "eagle", "eagle3")
"""The methods that vLLM's documentation says the table was tested with."""

WITHOUT_MODEL = ("dspark", "mtp", "ngram")
"""``dspark`` and ``mtp`` may have a model; vLLM takes the drafter in the target's checkpoint otherwise."""


def speculative_config(schedule: Schedule, *, method: Method, model: str | None = None) -> dict[str, Any]:
    """The object that vLLM takes as ``--speculative-config``.

    Args:
        schedule: depth by batch size.
        method: how vLLM drafts.
        model: hub id or folder of the drafter.

    Raises:
        ValueError: no batch size drafts, or the method and the model do not go together.
    """
    if schedule.max_depth == 0:
        raise ValueError(
            "vLLM needs num_speculative_tokens >= 1, and every depth of the schedule is 0: "
            "serve without --speculative-config"
        )
    if model is None and method not in WITHOUT_MODEL:
        raise ValueError(f"vLLM's method {method} needs a drafter, got none: set export.model=ID or a folder")
    if model is not None and method == "ngram":
        raise ValueError(f"vLLM's method ngram has no model, got {model!r}: leave export.model out")
    return {
        "method": method,
        **({} if model is None else {"model": model}),
        "num_speculative_tokens": schedule.max_depth,
        "num_speculative_tokens_per_batch_size": [list(entry) for entry in schedule.merged().depths],
    }


def notes(schedule: Schedule, method: Method) -> list[str]:
    """What to know beside the object, a line each."""
    _, last, depth = schedule.depths[-1]
    found = [f"past batch size {last} vLLM goes on with depth {depth}"]
    if method not in TESTED:
        found.append(
            f"vLLM's documentation says the table was tested with {', '.join(TESTED)}: try {method} first"
        )
    return found
