"""What a drafter that was trained on a target's features is: sizes and conventions, whatever file said so.

Checkpoint formats number layers, count slots and name vocabularies in ways of their own. A loader
turns all of that into one :class:`DraftSpec`, so that nothing past ``formats`` knows a file's layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dspark.drafters.eagle3_norms import Eagle3Norms
from dspark.models.base import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Mapping

DraftKind = Literal["dspark", "dflash", "eagle3"]
MarkovHeadType = Literal["vanilla", "gated", "rnn"]
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary frequencies that do not depend on how long a row is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """A drafter's architecture, and the target that it belongs to.

    ``feature_layers`` are :meth:`~dspark.models.base.Target.forward_with_features`'s: the output of
    decoder layer l, counted from 0, or -1 for what enters the first.

    A block starts with the anchor, the last committed token, at position s. Where
    ``samples_from_anchor``, its slot k (from 0) predicts the token at s + 1 + k, and ``block_size``
    slots give as many drafts (DeepSpec, DSpark). Otherwise slot k predicts position s + k, the
    anchor's own output is unused, and a block has one slot more than drafts (z-lab's DFlash).

    Raises:
        ValueError: a size or a combination that no drafter can have.
    """

    kind: DraftKind
    block_size: int  # drafts of a block (EAGLE-3: of a proposal), as it was trained
    feature_layers: tuple[int, ...]  # EAGLE-3: empty where they depend on a target's depth not known yet
    num_layers: int  # decoder layers of the drafter
    hidden_size: int  # of drafter and target
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int  # the target's
    draft_vocab_size: int  # tokens that can be drafted; smaller: a map says which
    num_target_layers: int | None = None  # None: the file does not say
    rms_norm_eps: float = 1e-6
    rope: Mapping[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10_000.0})
    max_context: int = 32_768  # positions that the drafter was configured for
    attention_bias: bool = False
    qk_norm: bool = True  # norms on every head's queries and keys, as in Qwen 3
    windows: tuple[int | None, ...] = ()  # sliding window of each layer; empty: full attention everywhere
    window_from_anchor: bool = False  # one edge a block, counted from its anchor, and not from each slot
    causal: tuple[bool, ...] = ()  # layers whose slots do not see later ones; empty: none
    mask_token_id: int | None = None  # fills the slots after the anchor; block drafters only
    samples_from_anchor: bool = True
    markov_rank: int = 0  # 0: no sequential head
    markov_head_type: MarkovHeadType = "vanilla"
    confidence_head: bool = False
    confidence_with_markov: bool = False  # it also sees the embedding of the token before
    norms: Eagle3Norms = field(default_factory=Eagle3Norms)  # of an EAGLE-3 head; nothing else reads it
    target_name: str | None = None

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_features()
        if self.rope.get("rope_type") not in ROPE_TYPES or "rope_theta" not in self.rope:
            raise ValueError(
                f"rope must have a rope_theta and a rope_type of {', '.join(ROPE_TYPES)} (others "
                f"depend on a row's length), got {dict(self.rope)}"
            )
        for name in ("windows", "causal"):
            given = getattr(self, name)
            if given and len(given) != self.num_layers:
                raise ValueError(f"{name} must have one entry a layer, {self.num_layers}, got {given}")
        if any(window is not None and window < 1 for window in self.windows):
            raise ValueError(f"windows must be >= 1 token, got {self.windows}")
        if self.kind != "eagle3":
            self._check_block()

    def _check_sizes(self) -> None:
        names = (
            "block_size", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim",
            "intermediate_size", "vocab_size", "draft_vocab_size", "max_context",
        )  # fmt: skip
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size must be at most vocab_size, {self.vocab_size}, got {self.draft_vocab_size}"
            )

    def _check_features(self) -> None:
        layers, depth = self.feature_layers, self.num_target_layers
        if not layers and depth is None and self.kind == "eagle3":
            return  # the file counts them from the target, which is not at hand
        wrong = [layer for layer in layers if layer < EMBEDDING or (depth is not None and layer >= depth)]
        if not layers or wrong or len(set(layers)) < len(layers):
            upper = "the last of the target" if depth is None else f"{depth - 1}, the last of the target"
            raise ValueError(
                f"feature_layers must be different ones of {EMBEDDING} (the embedding) to {upper}, at least "
                f"one, got {list(layers)}"
            )

    def _check_block(self) -> None:
        mask = self.mask_token_id
        if mask is None or not 0 <= mask < self.vocab_size:
            raise ValueError(
                f"mask_token_id must be in [0, {self.vocab_size - 1}], the vocabulary, got {mask}"
            )
        if self.kind == "dflash" and (self.markov_rank or self.confidence_head):
            raise ValueError(
                f"a dflash drafter has no heads, got markov_rank {self.markov_rank} and confidence_head "
                f"{self.confidence_head}; with heads its kind is dspark"
            )
        if self.markov_rank < 0:
            raise ValueError(f"markov_rank must be >= 0 (0: no sequential head), got {self.markov_rank}")
        if self.markov_head_type not in ("vanilla", "gated", "rnn"):
            raise ValueError(f"markov_head_type must be vanilla, gated or rnn, got {self.markov_head_type!r}")
        if self.confidence_head and self.confidence_with_markov and self.markov_rank == 0:
            raise ValueError(
                "a confidence head that reads the Markov embedding needs a Markov head, got markov_rank 0; "
                "turn confidence_with_markov off"
            )

    @property
    def num_slots(self) -> int:
        """Slots of a block of ``block_size`` drafts."""
        return self.slots_for(self.block_size)

    def slots_for(self, num_drafts: int) -> int:
        """Slots of a block that gives so many drafts."""
        return num_drafts if self.samples_from_anchor else num_drafts + 1

    @property
    def first_slot(self) -> int:
        """The slot that the first draft comes from."""
        return 0 if self.samples_from_anchor else 1

    @property
    def feature_size(self) -> int:
        """Width of a token's features: the layers side by side."""
        return len(self.feature_layers) * self.hidden_size

    @property
    def has_reduced_vocab(self) -> bool:
        """True where only some of the target's tokens can be drafted."""
        return self.draft_vocab_size < self.vocab_size

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer in tokens, or None."""
        return self.windows[layer] if self.windows else None

    @property
    def has_windows(self) -> bool:
        """True where a layer does not see the whole context."""
        return any(window is not None for window in self.windows)

    def is_causal(self, layer: int) -> bool:
        """True if the slots of a layer do not see later ones."""
        return bool(self.causal) and self.causal[layer]

    @property
    def sees_all(self) -> bool:
        """True where every slot sees the whole context and block in every layer."""
        return not any(self.causal) and not self.has_windows
