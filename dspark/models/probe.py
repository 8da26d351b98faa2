"""What a freshly loaded target must show before anybody relies on it, by running it.

A model that is not driven the way we think gives text, only the wrong one. So a short ragged pass
is compared with the model's own eager forward, every layer must write its keys once, and invariant
numerics are tried at very different pass lengths.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from dspark.models.base import PassRow

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.target import HFTarget

_RELATIVE_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.08}
_LONG_ROW_TOKENS = 200


@torch.inference_mode()
def probe(target: HFTarget) -> None:
    """Return if the target works as one flattened pass against our cache.

    Raises:
        ValueError: it does not, and in which way.
    """
    try:
        _probe_layers(target)
        _probe_logits(target)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"the target {_describe(target)} cannot be driven through a registered attention function "
            f"({reason}); use another target"
        ) from error
    if target.numerics == "invariant":
        _probe_invariance(target)


def _probe_layers(target: HFTarget) -> None:
    cache = target.new_cache(1, min(8, target.max_context))
    row = PassRow(slot=0, start=0, token_ids=[0, 1, 0], num_logits=1)
    layers = target.run_pass([row], cache)[1].layers_seen
    wanted = list(range(target.cache_shape.num_layers))
    if sorted(layers) != wanted:
        wrong = sorted(set(wanted) ^ set(layers)) or sorted({x for x in layers if layers.count(x) > 1})
        raise ValueError(
            f"the target {_describe(target)} does not attend through the registered function exactly once "
            f"in layers {wrong}, so its cache cannot be kept; use another target"
        )


def _probe_logits(target: HFTarget) -> None:
    """Two ragged rows, the second pass on top of the first, against the eager forward."""
    length = min(12, target.max_context)
    tokens = _random_rows(target, 2, length)
    cache = target.new_cache(2, length)
    cut = (length // 2, length // 3)
    target.forward([_row(i, row, 0, cut[i]) for i, row in enumerate(tokens)], cache)
    ours = target.forward([_row(i, row, cut[i], length) for i, row in enumerate(tokens)], cache)
    own = target.eager_logits(torch.tensor(tokens, device=target.device))
    scale = float(own.abs().max())
    error = float((ours - own).abs().max())
    if not error <= _RELATIVE_TOLERANCE.get(target.dtype, 1e-3) * (1 + scale):
        raise ValueError(
            f"the target {_describe(target)} gives other logits in a flattened pass than in its own eager "
            f"forward (difference {error:.2g}, largest logit {scale:.2g}); use another target"
        )


def _probe_invariance(target: HFTarget) -> None:
    """Rows in company against their solo runs, and one long pass against shorter ones, bit by bit.

    Expert layers see other row counts in company; elementwise kernels are cut into other pieces when
    a pass is long.
    """
    tokens = _random_rows(target, 3, min(13, target.max_context))
    cache = target.new_cache(3, len(tokens[0]))
    stop = len(tokens[0])
    target.forward([_row(i, row, 0, 4 + i, num_logits=0) for i, row in enumerate(tokens)], cache)
    together = target.forward([_row(i, row, 4 + i, stop) for i, row in enumerate(tokens)], cache)
    alone = []
    for i, row in enumerate(tokens):
        for at in range(4 + i, stop):
            logits = target.forward([_row(i, row, at, at + 1)], cache)
        alone.append(logits)
    _require_equal(target, together, torch.cat(alone), "alone than in company")

    (row,) = _random_rows(target, 1, min(_LONG_ROW_TOKENS, target.max_context))
    whole = target.forward([_row(0, row, 0, len(row))], target.new_cache(1, len(row)))
    cache = target.new_cache(1, len(row))
    pieces = [0, len(row) // 2 - 4, len(row) - 9, len(row)]
    for start, stop in itertools.pairwise(pieces):
        in_pieces = target.forward([_row(0, row, start, stop)], cache)
    _require_equal(target, whole, in_pieces, "in a long pass than in short ones")


def _require_equal(target: HFTarget, a: Tensor, b: Tensor, how: str) -> None:
    if not torch.equal(a, b):
        raise ValueError(
            f"numerics=invariant needs layers that treat a row alike in any pass, and {_describe(target)} "
            f"gave other bits {how}, with {torch.get_num_threads()} threads; use numerics=fast"
        )


def _random_rows(target: HFTarget, count: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(target.vocab_size, (count, length), generator=generator).tolist()


def _row(slot: int, tokens: list[int], start: int, stop: int, num_logits: int = 1) -> PassRow:
    return PassRow(slot=slot, start=start, token_ids=tokens[start:stop], num_logits=num_logits)


def _describe(target: HFTarget) -> str:
    return f"{target.name} ({type(target.model).__name__})"
