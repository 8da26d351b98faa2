"""The output law of the package's own acceptance functions, integrated in float64 without sampling."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from dspark.verification.acceptance import AcceptanceLaw, BlockLaw, Evidence, TokenLaw
from tests.verification.toy_tables import Path, Stop, Table, Trim, drafts, never, whole


def coded_joint(
    law: AcceptanceLaw,
    target: Table,
    draft: Table,
    depth: int,
    *,
    stop: Stop = never,
    trim: Trim = whole,
    with_q: bool = True,
    told: Table | None = None,
) -> dict[Path, float]:
    """The law of the first ``depth + 1`` output tokens, all drafted paths judged as one ragged batch.

    ``told`` is the q that the law is given, where that is not what the drafts were drawn from.
    """
    weighted = [
        (path[:length], float(weight * share))
        for path, weight in drafts(draft, depth, stop)
        for length, share in trim(path, draft)
    ]
    verified = [path for path, _ in weighted]
    seen = evidence(verified, target, told or draft, with_q=with_q)
    chances = outcome_probabilities(law, law.acceptance(seen), seen.lengths)
    joint: dict[Path, float] = defaultdict(float)
    for accepted in range(depth + 1):
        reached = seen.lengths.clamp(max=accepted)  # rows too short for it have no such outcome
        finals = law.final(seen, reached)
        finals = (finals / finals.sum(-1, keepdim=True)).tolist()
        for row, (path, weight) in enumerate(weighted):
            if accepted > len(path):
                continue
            for token, p in enumerate(finals[row]):
                start = (*path[:accepted], token)
                ways = weight * float(chances[row, accepted]) * p
                for output, mass in _complete(start, ways, target, depth + 1).items():
                    joint[output] += mass
    return joint


def coded_accepted(law: AcceptanceLaw, target: Table, draft: Table, depth: int) -> float:
    """Mean number of accepted drafts of one round."""
    paths, weights = zip(*drafts(draft, depth), strict=True)
    seen = evidence(list(paths), target, draft, with_q=True)
    chances = outcome_probabilities(law, law.acceptance(seen), seen.lengths)
    mean = chances @ torch.arange(depth + 1, dtype=torch.float64)
    return float(mean @ torch.tensor([float(weight) for weight in weights], dtype=torch.float64))


def evidence(paths: list[Path], target: Table, draft: Table, *, with_q: bool) -> Evidence:
    """Rows of drafted paths, of unequal lengths, in float64."""
    depth = max(len(path) for path in paths)
    sizes = [len(path) + 1 for path in paths]
    vocab_size = len(target[()])
    q = torch.full((len(paths), depth, vocab_size), torch.nan, dtype=torch.float64)
    tokens = torch.full((len(paths), depth), -1)
    for row, path in enumerate(paths):
        for k, token in enumerate(path):
            q[row, k] = torch.tensor([float(x) for x in draft[path[:k]]], dtype=torch.float64)
            tokens[row, k] = token
    p = [[float(x) for x in target[path[:k]]] for path in paths for k in range(len(path) + 1)]
    return Evidence(
        p=torch.tensor(p, dtype=torch.float64),
        first=torch.tensor(sizes).cumsum(0) - torch.tensor(sizes),
        tokens=tokens,
        lengths=torch.tensor(sizes) - 1,
        q=q if with_q else None,
        q_rows=torch.arange(len(paths)),
    )


def outcome_probabilities(law: AcceptanceLaw, acceptance: Tensor, lengths: Tensor) -> Tensor:
    """Float64 [R, K+1]: chance of each number of accepted drafts under independent uniforms.

    ``select`` keeps the drafts before the first failure (token) or up to the last success (block);
    what it does is tested on its own.
    """
    num_rows, depth = acceptance.shape
    chances = torch.zeros(num_rows, depth + 1, dtype=torch.float64)
    for row, length in enumerate(lengths.tolist()):
        accept = acceptance[row, :length]
        if isinstance(law, TokenLaw):
            for k in range(length + 1):
                chances[row, k] = accept[:k].prod() * (1 - accept[k] if k < length else 1)
        else:
            assert isinstance(law, BlockLaw)
            for k in range(length + 1):
                chances[row, k] = (accept[k - 1] if k else 1) * (1 - accept[k:]).prod()
    return chances


def _complete(path: Path, weight: float, target: Table, length: int) -> dict[Path, float]:
    if len(path) == length:
        return {path: weight}
    joint: dict[Path, float] = {}
    for token, p in enumerate(target[path]):
        joint |= _complete((*path, token), weight * float(p), target, length)
    return joint
