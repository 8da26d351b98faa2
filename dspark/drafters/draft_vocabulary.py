"""A drafter's own vocabulary: some of the target's tokens, and where their logits go.

The rule that verifies a draft compares q and p over the target's vocabulary. So the drafter's
logits are spread over it before anything is drawn, with -inf where the drafter has no token: q is
0 there, and everything else of the rule stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class DraftVocabulary:
    """Between draft ids and the target's.

    Args:
        d2t: int [W] offsets, draft id + d2t[draft id] = the target's id; None where the two are one.
        vocab_size: V, the target's.
    """

    def __init__(self, d2t: Tensor | None, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._target_ids: Tensor | None = None
        self._wide: Tensor | None = None
        if d2t is not None:
            self._target_ids = torch.arange(d2t.shape[0], device=d2t.device) + d2t
            self._draft_ids = torch.zeros(vocab_size, dtype=torch.int64, device=d2t.device)
            self._draft_ids[self._target_ids] = torch.arange(d2t.shape[0], device=d2t.device)

    def widen(self, logits: Tensor) -> Tensor:
        """Logits [R, V] over the target's vocabulary of logits [R, W].

        The next call overwrites them: the same places are filled anew, the others stay -inf.
        """
        if self._target_ids is None:
            return logits
        num_rows = logits.shape[0]
        if self._wide is None or self._wide.shape[0] < num_rows:
            self._wide = logits.new_full((num_rows, self.vocab_size), -torch.inf)
        return self._wide[:num_rows].index_copy_(1, self._target_ids, logits)

    def draft_ids(self, target_ids: Tensor) -> Tensor:
        """Draft ids of tokens that were drafted, int [...] each."""
        return target_ids if self._target_ids is None else self._draft_ids[target_ids]
