"""The sizes of a decoder, without its weights: parameters, FLOPs and bytes of a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from dspark.cost.feed_forward import FeedForward
    from dspark.cost.mixers import Mixer
    from dspark.cost.pass_size import PassSize


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that are alike; where they are in the stack does not matter here."""

    count: int
    mixer: Mixer
    feed_forward: FeedForward
    num_norms: int = 2  # over the hidden size


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder by its sizes.

    Raises:
        ValueError: a size is not positive, or there are no layers.
    """

    name: str
    source: str  # where the sizes come from
    hidden: int
    vocab: int  # V
    tied_head: bool  # the output matrix is the embedding
    groups: tuple[LayerGroup, ...]
    residual_streams: int = 1  # above 1: hyper-connections mix so many (arXiv 2409.19606)

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError(f"{self.name} needs at least one layer, got none")
        sizes = {"hidden": self.hidden, "vocab": self.vocab, "residual_streams": self.residual_streams}
        sizes |= {"count of a layer group": min(group.count for group in self.groups)}
        for what, size in sizes.items():
            if size < 1:
                raise ValueError(f"{what} of {self.name} must be >= 1, got {size}")

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return sum(group.count for group in self.groups)

    @property
    def num_parameters(self) -> int:
        """All weights, the embedding once if it is the head too."""
        layers = sum(group.count * self._stored(group) for group in self.groups)
        embeddings = self._head if self.tied_head else 2 * self._head
        return layers + embeddings + self.hidden + self._final_mix

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied by: matrices of its layers and experts, and the head."""
        return self._layer_matrices + self._head

    def weight_bytes(self, tokens: Tensor, bytes_per_value: int) -> Tensor:
        """Expected bytes of weights that a pass reads: once, with one embedding row a token.

        Of routed experts, those that some token chooses (``expert_coverage``).

        Args:
            tokens: N, of the pass; float64.
            bytes_per_value: of a weight.
        """
        read = self._head + self.hidden * (1 + tokens) + self._final_mix
        for group in self.groups:
            always = group.mixer.matrix_parameters(self.hidden) + self._vectors(group)
            read = read + group.count * (
                always + self._mixing + group.feed_forward.read_parameters(self.hidden, tokens)
            )
        return read * bytes_per_value

    def cache_bytes(self, size: PassSize, bytes_per_value: int) -> Tensor:
        """Bytes of cache and state that a pass reads and writes, over all rows and layers."""
        return size.rows * sum(
            group.count * group.mixer.cache_bytes(size, bytes_per_value) for group in self.groups
        )

    def flops(self, size: PassSize, num_logits: Tensor | None = None) -> Tensor:
        """FLOPs of a pass; a multiplication with an addition counts as two.

        Args:
            size: of the pass.
            num_logits: positions that the head is applied to; None: all tokens, as verification needs.
        """
        context = sum(group.count * group.mixer.context_flops(size) for group in self.groups)
        heads = size.tokens if num_logits is None else num_logits
        return size.tokens * (2 * self._layer_matrices + context) + 2 * self._head * heads

    def kv_bytes_per_token(self, bytes_per_value: int) -> float:
        """Bytes of cache that a token adds over all layers while every window has room for it."""
        return sum(group.count * group.mixer.kv_bytes_per_token(bytes_per_value) for group in self.groups)

    def held_bytes(self, context_tokens: float, bytes_per_value: int) -> float:
        """Bytes of cache and state that a row of that context holds over all layers."""
        return sum(
            group.count * group.mixer.held_bytes(context_tokens, bytes_per_value) for group in self.groups
        )

    def _stored(self, group: LayerGroup) -> int:
        """Weights of one layer."""
        matrices = group.mixer.matrix_parameters(self.hidden)
        matrices += group.feed_forward.stored_parameters(self.hidden)
        return matrices + self._vectors(group) + self._mixing

    def _vectors(self, group: LayerGroup) -> int:
        """Weights of one layer that are no matrices."""
        vectors = group.mixer.vector_parameters(self.hidden)
        vectors += group.feed_forward.vector_parameters(self.hidden)
        mixing = 0 if self.residual_streams == 1 else 2 * (self._mixing_width + 3)
        return vectors + group.num_norms * self.hidden + mixing

    @property
    def _layer_matrices(self) -> int:
        """Matrix weights of all layers that one token is multiplied by."""
        return sum(
            group.count
            * (
                group.mixer.matrix_parameters(self.hidden)
                + group.feed_forward.used_parameters(self.hidden)
                + self._mixing
            )
            for group in self.groups
        )

    @property
    def _mixing_width(self) -> int:
        """Outputs of a hyper-connection: n in, n out, n² between the streams."""
        return self.residual_streams * (2 + self.residual_streams)

    @property
    def _mixing(self) -> int:
        """Matrix weights of a layer's two hyper-connections."""
        if self.residual_streams == 1:
            return 0
        return 2 * self._mixing_width * self.residual_streams * self.hidden

    @property
    def _final_mix(self) -> int:
        """Weights that bring the streams together before the head."""
        if self.residual_streams == 1:
            return 0
        return self.residual_streams * (self.residual_streams * self.hidden + 1) + 1

    @property
    def _head(self) -> int:
        """Matrix weights of the head, and of the embedding."""
        return self.hidden * self.vocab
