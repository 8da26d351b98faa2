"""Who takes part: every policy of the package, as deep as the drafter's blocks, and those that cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.shipped.models import BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

LEFT_OUT: Mapping[str, str] = {
    "fixed": "every fixed depth is what policies are held against",
    "dsde": "asks for the divergence from the target, which a trace does not hold",
}
"""Policies that are not in the league, and why."""

_AS_IT_COMES = (
    *("bandit", "batch_table", "cascade", "ema", "nightjar", "prefix_scheduler", "retrospective_argmax"),
    *("sglang_throughput", "stale_scheduler", "tetris"),
)
_NO_DEEPER = (
    *("adaedl", "confidence", "confidence_stop", "dcut", "draft_verify", "gammatune", "hf_heuristic"),
    *("leviathan", "per_request_ema", "sampled_drop", "smartspec", "specdecpp", "svip", "token_confidence"),
)
ENTRIES: Mapping[str, str] = {
    **{name: name for name in _AS_IT_COMES},
    **{name: f"{name} depth={BLOCK}" for name in _NO_DEEPER},
}
"""Entries of `policies=[...]` by option of the group policy; all else is as its YAML has it."""
QUICK = ("batch_table", "prefix_scheduler", "hf_heuristic")


def option_of(label: str) -> str:
    """The policy's option, by the label that commands give it."""
    return label.split(" ", 1)[0]
