"""EAGLE-3 drafts: one token after another from the target's features (Li et al., arXiv 2503.01840).

Before a draft, the pairs of the tokens committed since the last one are made keys and values, all
rows' at once; a depth-0 step only keeps features. The last committed pair of each row is the first
that is predicted from, so K drafts take the catching up and K - 1 passes over one pair a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.draft_vocabulary import DraftVocabulary
from dspark.drafters.eagle3_pairs import PairCache
from dspark.drafters.fused_block import with_shared_weights
from dspark.drafters.signals import LOGIT_SIGNALS, LogitSignals
from dspark.models.linear import DEFAULT_THRESHOLDS, install_row_linears
from dspark.models.native.linear import install_native_linears
from dspark.types import NO_TOKEN, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.eagle3_model import Eagle3Model
    from dspark.models.base import PassRow
    from dspark.models.native.binding import Kernels


class Eagle3Drafter(Drafter):
    """An autoregressive drafter on the target's features.

    Args:
        model: the head, with the target's tables in place; its weights are shared, not copied.
        kernels: the target's CPU kernels, if it has any.
    """

    signals = LOGIT_SIGNALS
    deterministic = False
    autoregressive = True

    def __init__(self, model: Eagle3Model, kernels: Kernels | None = None) -> None:
        self.spec = model.spec
        self.vocab_size: int | None = model.spec.vocab_size
        self.max_context: int | None = model.spec.max_context
        self.feature_layers = model.spec.feature_layers
        self.model = _for_drafting(model, kernels)
        self._vocabulary = DraftVocabulary(model.d2t, model.spec.vocab_size)
        self._pairs: PairCache | None = None

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Allocate keys and values for rows of up to ``max_context`` tokens, or the head's own context."""
        max_tokens = min(max_context, self.spec.max_context)
        self._pairs = PairCache(self.model, num_slots=num_slots, max_tokens=max_tokens)

    def take_features(self, rows: Sequence[PassRow], features: Tensor) -> None:
        """Keep the features; they are looked at when their row is drafted for."""
        self._opened().take_features(rows, features)

    def release(self, slot: int) -> None:
        """Forget the slot's features and pairs."""
        self._opened().release(slot)

    @torch.inference_mode()
    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Drafts one token at a time for the rows still going; see :meth:`Drafter.propose`."""
        pair_cache = self._opened()
        depths, slots = plan.tolist(), batch.slots.tolist()
        num_rows, max_depth = len(depths), max(depths)
        tokens = torch.full((num_rows, max_depth), NO_TOKEN, device=plan.device)
        lengths = torch.zeros_like(plan)
        signals = LogitSignals(num_rows, max_depth, batch.needs & self.signals, plan.device)
        q: Tensor | None = None
        rows = [row for row, depth in enumerate(depths) if depth > 0]
        going = torch.tensor(rows, device=plan.device)
        heads = pair_cache.catch_up([slots[row] for row in rows], [batch.tokens[row] for row in rows])
        for k in range(1, max_depth + 1):
            normed, g = self.model.finished(pair_cache.attend(heads))
            logits = self.model.lm_head(normed).float()
            drawn, q_k = batch.sampler.draw(going, k, self._vocabulary.widen(logits), tokens[going, : k - 1])
            tokens[going, k - 1] = drawn.to(plan.device)
            lengths[going] = k
            signals.record(going, k, logits, self._vocabulary.draft_ids(drawn))
            if q_k is not None:
                q = q_k.new_zeros(num_rows, max_depth, q_k.shape[1]) if q is None else q
                q[going.to(q.device), k - 1] = q_k
            go_on = proceed(k, signals.upto(k)) & (plan > k) & (lengths == k)
            kept = go_on[going].nonzero().squeeze(1)
            if kept.numel() == 0:
                break
            heads = pair_cache.extend(heads, kept.tolist(), g, drawn)
            going = going[kept]
        return Draft(tokens=tokens, lengths=lengths, q=q, signals=signals.all())

    def _opened(self) -> PairCache:
        assert self._pairs is not None, "the drafter is used before open"
        return self._pairs


def _for_drafting(model: Eagle3Model, kernels: Kernels | None) -> Eagle3Model:
    """The same weights in layers that are fast for few rows; a model in training keeps its own layers."""
    ours = with_shared_weights(model)
    weight = ours.fc.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return ours
    if kernels is None:
        install_row_linears(ours, DEFAULT_THRESHOLDS)
    else:
        install_native_linears(ours, kernels)
    return ours
