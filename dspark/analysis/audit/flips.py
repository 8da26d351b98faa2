"""Decisions that hang on the token they are about.

Whether position k of a row is verified must not depend on what was drawn there or later in that
row, given the tokens before it (arXiv 2607.05147, appendix A). In a toy world all drafts are known,
so two that differ from position k on, and in nothing else, can be set against each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dspark.analysis.audit.cases import Shape, random_world
from dspark.analysis.audit.drive import Decided, Drive, Situation
from dspark.analysis.audit.output_law import warmed_up
from dspark.analysis.audit.rules import EXACT_RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dspark.analysis.audit.tables import Path
    from dspark.analysis.audit.world import World
    from dspark.policies.base import Policy


HUNTING_GROUNDS = (
    Shape(num_requests=1, vocab_size=2, horizon=3),
    Shape(num_requests=1, vocab_size=2, horizon=4),
    Shape(num_requests=2, vocab_size=2, horizon=5, num_certain=2),
)
"""Small shapes in which a later position, or another row, can decide about an earlier one."""

HUNT_WARM_UPS = (0, 12)
"""Steps of history, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """Two drafts of a row, equal before ``position``, of which only one is verified there."""

    row: int
    position: int  # from 1
    output: Path  # committed before
    kept: Path
    kept_length: int  # >= position
    dropped: Path
    dropped_length: int  # < position
    beside: tuple[tuple[int, Path], ...]  # row and draft of the other running rows, in both


def find_flip(drive: Drive, situations: Iterable[Situation]) -> Flip | None:
    """The first flip in any of the situations, with the drafts differing in the position itself if any do."""
    later = None
    for situation in situations:
        for flip in _flips(list(drive.decide(situation))):
            if flip.kept[flip.position - 1] != flip.dropped[flip.position - 1]:
                return flip
            later = later or flip
    return later


def hunt(policy: Policy, *, tries: int, seed: int, autoregressive: Sequence[bool]) -> list[World]:
    """Those of some small random worlds in which a decision of the first step hangs on its own token.

    Only decisions are looked at, which is quick; costs and confidences are new in every try. A flip
    need not bias the output; the exact law tells.

    Args:
        policy: the prey.
        tries: worlds.
        seed: of the worlds.
        autoregressive: kinds of drafters, in turn.
    """
    found = []
    for number in range(tries):
        turn, ground = divmod(number, len(HUNTING_GROUNDS))
        world = replace(
            random_world(HUNTING_GROUNDS[ground], seed * 100_003 + number),
            name=f"hunt {number}",
            warm_up_steps=HUNT_WARM_UPS[turn % len(HUNT_WARM_UPS)],
            autoregressive=autoregressive[turn // len(HUNT_WARM_UPS) % len(autoregressive)],
        )
        drive = Drive(policy, world, EXACT_RULES["rejection"])
        if find_flip(drive, [warmed_up(drive)]) is not None:
            found.append(world)
    return found


def _flips(decisions: list[Decided]) -> Iterator[Flip]:
    """Flips between the joint drafts of one step."""
    kept: dict[tuple, tuple[Path, int]] = {}
    dropped: dict[tuple, tuple[Path, int]] = {}
    for decided in decisions:
        for i, draft in enumerate(decided.drafts):
            rows = zip(decided.drafting.rows, decided.drafts, strict=True)
            beside = tuple(pair for j, pair in enumerate(rows) if j != i)
            for position in range(1, len(draft) + 1):
                key = (i, position, draft[: position - 1], beside)
                length = decided.lengths[i]
                side = kept if length >= position else dropped
                side.setdefault((*key, draft[position - 1]), (draft, length))
    for key, (draft, length) in sorted(kept.items()):
        for other_key, (other, other_length) in sorted(dropped.items()):
            if key[:-1] == other_key[:-1]:
                i, position, _, beside, _ = key
                yield Flip(
                    row=decisions[0].drafting.rows[i],
                    position=position,
                    output=decisions[0].drafting.outputs[i],
                    kept=draft,
                    kept_length=length,
                    dropped=other,
                    dropped_length=other_length,
                    beside=beside,
                )
