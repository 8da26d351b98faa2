"""What the drafter of a toy world hands over: the tensors that policies meet in the engine.

Shapes as in ``dspark.types``. A draft is a path; an empty one stands for a row without a draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.signals import LogitSignals
from dspark.types import NO_TOKEN, Draft, Signal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from dspark.analysis.audit.tables import Path
    from dspark.analysis.audit.world import World

_FROM_LOGITS = frozenset({Signal.TOP1_PROBABILITY, Signal.ENTROPY, Signal.MARGIN, Signal.TOKEN_PROBABILITY})
_NEVER = -1e4  # logit of a token of probability 0: real logits are finite too


class ToyDrafter:
    """Drafts of a world as records; remembers what it computed.

    Args:
        world: gives laws and confidences.
        wanted: signals that somebody reads; others are left out.
    """

    def __init__(self, world: World, wanted: Collection[Signal]) -> None:
        self._world = world
        self._wanted = sorted(wanted)
        self._known: dict[tuple[int, Path, int], Mapping[Signal, float]] = {}

    def signals(
        self, rows: Sequence[int], outputs: Sequence[Path], drafts: Sequence[Path], width: int
    ) -> dict[Signal, Tensor]:
        """Float32 [B, width] signals of drafts, NaN past them.

        Args:
            rows: indices of the B rows in the world.
            outputs: committed tokens of each.
            drafts: drafted tokens of each.
            width: columns.
        """
        table = [
            [self._at(row, (*output, *draft[:k]), token) for k, token in enumerate(draft[:width])]
            for row, output, draft in zip(rows, outputs, drafts, strict=True)
        ]
        return {
            signal: _padded([[at[signal] for at in row] for row in table], width) for signal in self._wanted
        }

    def draft(
        self,
        rows: Sequence[int],
        outputs: Sequence[Path],
        drafts: Sequence[Path],
        width: int,
        *,
        with_q: bool,
    ) -> Draft:
        """The drafts of B rows; arguments as in ``signals``."""
        tokens = [[*draft, *[NO_TOKEN] * (width - len(draft))] for draft in drafts]
        return Draft(
            tokens=torch.tensor(tokens, dtype=torch.int64).view(len(rows), width),
            lengths=torch.tensor([len(draft) for draft in drafts], dtype=torch.int64),
            q=self._q(rows, outputs, drafts, width) if with_q else None,
            signals=self.signals(rows, outputs, drafts, width),
        )

    def _q(self, rows: Sequence[int], outputs: Sequence[Path], drafts: Sequence[Path], width: int) -> Tensor:
        """Float32 [B, width, V], 0 past the drafts."""
        q = torch.zeros(len(rows), width, max(self._world.requests[row].vocab_size for row in rows))
        for i, (row, output, draft) in enumerate(zip(rows, outputs, drafts, strict=True)):
            for k in range(len(draft)):
                law = self._world.draft_law(row, (*output, *draft[:k]))
                q[i, k, : len(law)] = torch.tensor([float(x) for x in law])
        return q

    def _at(self, row: int, path: Path, token: int) -> Mapping[Signal, float]:
        """The wanted signals about ``token``, drafted after ``path``."""
        key = (row, path, token)
        if key not in self._known:
            request = self._world.requests[row]
            logits = torch.tensor([[float(q) for q in request.drafter[path]]]).log().clamp(min=_NEVER)
            values = LogitSignals(1, 1, _FROM_LOGITS & set(self._wanted), logits.device)
            values.record(torch.tensor([0]), 1, logits, torch.tensor([token]))
            found = {signal: float(value) for signal, value in values.all().items()}
            self._known[key] = {**found, Signal.CONFIDENCE: float(request.confidence[path])}
        return self._known[key]


def _padded(values: list[list[float]], width: int) -> Tensor:
    """Float32 [B, width], NaN past each row's values."""
    rows = [[*row, *[torch.nan] * (width - len(row))] for row in values]
    return torch.tensor(rows, dtype=torch.float32).view(len(values), width)
