"""Speculative decoding of many requests of a toy model, through the package's own rules.

A model is a table of logits after the last two tokens, so a whole batch is looked up at once. Every
row has a seed of its own, which makes one batch of many rows a sample of the output law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from dspark.types import NO_TOKEN, Draft, SamplingParams
from dspark.verification import SampledRow, Verification

PROMPT = (0, 1)
EOS = (2,)
MAX_DEPTH = 3


def toy_logits(seed: int, vocab_size: int, *, spread: float = 1.5) -> Tensor:
    """Float [V, V, V]: logits after the last two tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(vocab_size, vocab_size, vocab_size, generator=generator) * spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Outputs of a run, and what the rounds did."""

    tokens: Tensor  # [N, num_new]
    accepted: int
    verified: int
    rounds: int


def generate(
    rule: Verification,
    target: Tensor,
    drafter: Tensor,
    params: SamplingParams,
    *,
    num_rows: int,
    num_new: int,
    seed: int = 0,
    deterministic: bool = False,
    stop_unlikely: bool = False,
    ragged: bool = True,
    trim: Callable[[Draft], Tensor] | None = None,
    max_depth: int = MAX_DEPTH,
) -> Generated:
    """Outputs of ``num_rows`` requests of the toy model.

    Args:
        rule: the rule under test.
        target: its logits.
        drafter: the drafter's logits.
        params: of all rows.
        num_rows: N.
        num_new: output tokens a row.
        seed: of the first row; the others count on.
        deterministic: draft arg maxima and give no q.
        stop_unlikely: end a draft after a token that q gave less than 0.4 (class B).
        ragged: vary depths over 0..max_depth and cut drafts at random, by row and round; else draft
            and verify max_depth always.
        trim: int [N] verify lengths, in place of those.
        max_depth: largest depth.
    """
    tokens = torch.full((num_rows, len(PROMPT) + num_new + max_depth + 1), NO_TOKEN)
    tokens[:, : len(PROMPT)] = torch.tensor(PROMPT)
    lengths = torch.full((num_rows,), len(PROMPT))
    accepted = verified = rounds = 0
    while (alive := (lengths < len(PROMPT) + num_new).nonzero().squeeze(1)).numel():
        rows = [
            SampledRow(
                params=params,
                tokens=row[:length],
                num_prompt=len(PROMPT),
                eos_token_ids=EOS,
                seed=seed + index,
            )
            for index, length, row in zip(
                alive.tolist(), lengths[alive].tolist(), tokens[alive].tolist(), strict=True
            )
        ]
        plan = (alive * 7 + rounds * 3) % (max_depth + 1) if ragged else torch.full_like(alive, max_depth)
        draft = _draft(rule, rows, drafter, plan, deterministic=deterministic, stop_unlikely=stop_unlikely)
        if trim is not None:
            cut = trim(draft)
        else:
            cut = (alive // 5 + rounds) % (max_depth + 2) if ragged else draft.lengths
        trimmed = torch.minimum(draft.lengths, cut)
        verdict = rule.verify(rows, draft, trimmed, _target_logits(rows, draft, trimmed, target))
        for k in range(max_depth):
            kept = (k < verdict.accepted).nonzero().squeeze(1)
            tokens[alive[kept], lengths[alive[kept]] + k] = draft.tokens[kept, k]
        tokens[alive, lengths[alive] + verdict.accepted] = verdict.next_token
        lengths[alive] += verdict.accepted + 1
        accepted += int(verdict.accepted.sum())
        verified += int(trimmed.sum())
        rounds += 1
    outputs = tokens[:, len(PROMPT) : len(PROMPT) + num_new]
    return Generated(tokens=outputs, accepted=accepted, verified=verified, rounds=rounds)


def _last_two(rows: list[SampledRow]) -> Tensor:
    return torch.tensor([row.tokens[-2:] for row in rows])


def _draft(
    rule: Verification,
    rows: list[SampledRow],
    drafter: Tensor,
    plan: Tensor,
    *,
    deterministic: bool,
    stop_unlikely: bool,
) -> Draft:
    depth, vocab_size = max(int(plan.max()), 1), drafter.shape[-1]
    sampler = rule.draft_sampler(rows)
    keeps_q = sampler.needs_q and not deterministic
    tokens = torch.full((len(rows), depth), NO_TOKEN)
    q = torch.full((len(rows), depth, vocab_size), torch.nan) if keeps_q else None
    path = torch.cat([_last_two(rows), tokens], dim=1)
    lengths = torch.zeros_like(plan)
    going = (plan > 0).nonzero().squeeze(1)
    for k in range(1, depth + 1):
        logits = drafter[path[going, k - 1], path[going, k]]
        if deterministic:
            drawn, law = logits.argmax(-1), None
        else:
            drawn, law = sampler.draw(going, k, logits, tokens[going, : k - 1])
        tokens[going, k - 1] = drawn
        path[going, k + 1] = drawn
        lengths[going] = k
        if q is not None:
            assert law is not None
            q[going, k - 1] = law
        on = plan[going] > k
        if stop_unlikely and law is not None:
            on &= law.gather(1, drawn[:, None]).squeeze(1) >= 0.4
        going = going[on]
    return Draft(tokens=tokens, lengths=lengths, q=q)


def _target_logits(rows: list[SampledRow], draft: Draft, verify_lengths: Tensor, target: Tensor) -> Tensor:
    path = torch.cat([_last_two(rows), draft.tokens], dim=1)
    depth = torch.arange(draft.tokens.shape[1] + 1)
    seen = depth <= verify_lengths[:, None]
    return target[path[:, :-1][seen], path[:, 1:][seen]]


def exact_joint(target: Tensor, params: SamplingParams, num_new: int) -> dict[tuple[int, ...], float]:
    """The law of the outputs of plain decoding, by a plain reading of what the parameters mean."""
    vocab_size = target.shape[-1]
    joint = {}
    for output in product(range(vocab_size), repeat=num_new):
        mass, path = 1.0, list(PROMPT)
        for token in output:
            mass *= plain_law(target[path[-2], path[-1]].double().numpy(), params, path)[token]
            path.append(token)
        joint[output] = mass
    return joint


def plain_law(logits: np.ndarray, params: SamplingParams, path: list[int]) -> np.ndarray:
    """The law of one token: penalty, forbidden end tokens, temperature, top-k, top-p, in this order."""
    logits = logits.copy()
    for token in set(path):
        penalty = params.repetition_penalty
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    if len(path) - len(PROMPT) < params.min_new_tokens:
        logits[list(EOS)] = -np.inf
    p = np.exp((logits - logits.max()) / params.temperature)
    order = np.argsort(-p, kind="stable")
    if params.top_k:
        p[order[params.top_k :]] = 0
    p /= p.sum()
    mass_before = np.cumsum(p[order]) - p[order]
    p[order[mass_before >= params.top_p]] = 0
    return p / p.sum()


def chi_square_p_value(tokens: Tensor, joint: dict[tuple[int, ...], float]) -> float:
    """P value of Pearson's test of the outputs against their exact law; rare outputs are pooled."""
    counts = Counter(map(tuple, tokens.tolist()))
    impossible = [output for output in counts if joint[output] == 0]
    assert not impossible, f"outputs of probability 0: {impossible[:3]}"
    total = len(tokens)
    cells = [[counts[output], mass * total] for output, mass in joint.items() if mass * total >= 5]
    rare = [[counts[output], mass * total] for output, mass in joint.items() if 0 < mass * total < 5]
    if rare:
        cells.append([sum(seen for seen, _ in rare), sum(mass for _, mass in rare)])
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    return float(chi2.sf(statistic, len(cells) - 1))
