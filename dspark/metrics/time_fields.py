"""Names of the fields that hold time: those of a modelled run start with ``modelled_``.

Seconds of the wall and seconds of a cost model (``ModelledClock``) are different things, so no
column of a file, table, frame or tracker holds both. In memory a field has one name and its record
says whose seconds they are; the name is chosen where it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODELLED = "modelled_"

TIME_FIELDS = frozenset(
    {
        *("wall_s", "time_split_s", "tokens_per_s", "decode_tokens_per_s", "goodput_tokens_per_s"),
        *("ttft_mean_s", "tpot_mean_s", "ttft_s", "latency_s"),
        *("ratio_to_plain", "ratio_to_plain_end_to_end"),
    }
)
"""Every field of steps, outputs and summary rows that holds seconds, or a rate or ratio of them."""


def time_field(name: str, *, is_modelled: bool) -> str:
    """What the field is called in a run by that clock; other fields keep their name."""
    return f"{MODELLED}{name}" if is_modelled and name in TIME_FIELDS else name


def named_by_clock(item: Mapping[str, Any], *, is_modelled: bool) -> dict[str, Any]:
    """The item with each of its fields named by the clock, in the same order."""
    return {time_field(name, is_modelled=is_modelled): value for name, value in item.items()}


def by_modelled_clock(item: Mapping[str, Any]) -> bool:
    """True for an item of a file that a modelled run wrote."""
    return any(name.startswith(MODELLED) for name in item)


def one_clock(items: Iterable[Mapping[str, Any]]) -> bool:
    """True if all items are of modelled runs, False if none is; False for no items.

    Raises:
        ValueError: there are both.
    """
    found = {by_modelled_clock(item) for item in items}
    if len(found) > 1:
        raise ValueError(
            "wall and modelled seconds cannot be put side by side, and these rows hold both: "
            "take rows of one engine.clock"
        )
    return found == {True}
