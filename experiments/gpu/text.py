"""Whether a small model writes the same greedy text on every path of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import Engine
from dspark.models.target import load_target
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.models.attention_choice import AttentionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run the model."""

    name: str
    dtype: str
    attention: AttentionKind
    cuda_graphs: bool
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How many prompts a path continues as the first path of its dtype does, and where it first parts."""

    path: str
    same: int
    num_prompts: int
    first_difference: int | None  # tokens in common before the earliest difference


PATHS = (
    Way(name="float32, sdpa", dtype="float32", attention="sdpa", cuda_graphs=False, depth=0),
    Way(name="float32, sdpa, n-gram 4", dtype="float32", attention="sdpa", cuda_graphs=False, depth=4),
    Way(name="bfloat16, varlen", dtype="bfloat16", attention="varlen", cuda_graphs=False, depth=0),
    Way(name="bfloat16, varlen, graphs", dtype="bfloat16", attention="varlen", cuda_graphs=True, depth=0),
    Way(
        name="bfloat16, varlen, graphs, n-gram 4",
        dtype="bfloat16",
        attention="varlen",
        cuda_graphs=True,
        depth=4,
    ),
)


def agreements(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    *,
    device: str,
    paths: Sequence[Way] = PATHS,
    num_new: int = 64,
) -> list[Agreement]:
    """One row a path, in order; bfloat16 rounds ties, so paths are compared within their dtype."""
    first: dict[str, list[tuple[int, ...]]] = {}
    rows = []
    for path in paths:
        target = load_target(
            folder, dtype=path.dtype, device=device, attention=path.attention, cuda_graphs=path.cuda_graphs
        )
        drafter = NgramDrafter() if path.depth else None
        engine = Engine(target, drafter, Fixed(depth=path.depth), max_batch_size=len(prompts))
        params = SamplingParams(max_new_tokens=num_new, ignore_eos=True)
        texts = [done.token_ids for done in engine.generate([list(p) for p in prompts], params)]
        rows.append(compare(path.name, texts, first.setdefault(path.dtype, texts)))
    return rows


def compare(name: str, texts: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> Agreement:
    """The agreement of two lists of token ids of the same prompts."""
    differences = [
        next((at for at, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), min(len(x), len(y)))
        for x, y in zip(texts, wanted, strict=True)
        if x != y
    ]
    return Agreement(
        path=name,
        same=len(texts) - len(differences),
        num_prompts=len(texts),
        first_difference=min(differences, default=None),
    )
