"""Hidden states of a Hugging Face decoder's layers, caught by hooks during a pass."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from dspark.models.base import EMBEDDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


def check_feature_layers(layers: tuple[int, ...], num_layers: int, name: str) -> None:
    """Nothing, if the model has these layers.

    Raises:
        ValueError: it does not, or a layer is asked for twice.
    """
    wrong = [layer for layer in layers if not EMBEDDING <= layer < num_layers]
    if wrong or len(set(layers)) < len(layers):
        raise ValueError(
            f"feature layers must be different ones of {EMBEDDING} (the embedding) to {num_layers - 1} of "
            f"{name}, got {list(layers)}"
        )


@contextlib.contextmanager
def tapped(model: Any, layers: tuple[int, ...]) -> Iterator[dict[int, Tensor]]:
    """What passes inside the block leave behind: layer -> output [1, P, hidden] of the last one."""
    decoder = model.get_decoder()
    seen: dict[int, Tensor] = {}

    def keep_output(layer: int):
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            seen[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    def keep_input(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen[EMBEDDING] = args[0] if args else kwargs["hidden_states"]

    handles = [
        # the first layer's input rather than the table's output, which some models scale afterwards
        decoder.layers[0].register_forward_pre_hook(keep_input, with_kwargs=True)
        if layer == EMBEDDING
        else decoder.layers[layer].register_forward_hook(keep_output(layer))
        for layer in layers
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
