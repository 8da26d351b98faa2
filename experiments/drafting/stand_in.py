"""Tiny drafters for the tiny target of ``debug=smoke``: a shortened run needs one of each kind.

The one of kind DSpark knows by heart which token follows which in the texts of the first built-in
prompts, by its Markov head alone, so that a good part of its drafts is accepted and the rest is not. Its
confidences, and all of the others', are random.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.formats import save_drafter_folder
from dspark.drafters.spec import DraftSpec
from dspark.metrics.trace import read_jsonl
from dspark.models.synthetic import NUM_TOKENS
from experiments.reproduce.commands import dspark

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

SURE = 8.0
"""Logit of a token for every time that it followed the one before."""

TEXTS = (
    *("run", "debug=smoke", "drafter=none", "policy.depth=0", "verification=greedy"),
    *("workload.num_requests=6", "sampling.max_new_tokens=24"),
)


def make_stand_in(kind: str, folder: Path) -> Path:
    """The folder of a drafter of kind dspark, dflash or eagle3 below ``folder``, made if it is not there."""
    out = folder / kind
    if (out / "config.json").is_file():  # which is written last
        return out
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Eagle3Model(_eagle3_spec()) if kind == "eagle3" else BlockBackbone(_block_spec(kind))
    if kind == "dspark":
        assert isinstance(model, BlockBackbone), "eagle3 is another kind"
        _learn(model, _followers(dspark(TEXTS, folder / "texts")))
    return save_drafter_folder(
        model, out, layout="speculators", dtype=torch.float32, with_tables=False, with_head=True
    )


@torch.no_grad()
def _learn(model: BlockBackbone, followers: Tensor) -> None:
    """Logits of the followers of the token before, and nothing else; confidences that differ."""
    assert model.markov_head is not None, "a DSpark drafter"
    assert model.confidence_head is not None, "a DSpark drafter"
    model.lm_head.weight.zero_()
    model.markov_head.markov_w1.weight.copy_(torch.eye(NUM_TOKENS))
    model.markov_head.markov_w2.weight.copy_(SURE * followers.T[:-1])
    model.confidence_head.proj.weight.mul_(10)


def _followers(run: Path) -> Tensor:
    """Float [V, V]: how often a token followed another in the texts of a run."""
    counts = torch.zeros(NUM_TOKENS, NUM_TOKENS)
    for output in read_jsonl(run / "outputs.jsonl"):
        for before, after in pairwise(output["token_ids"]):
            counts[before, after] += 1
    return counts


def _block_spec(kind: str) -> DraftSpec:
    if kind == "dflash":
        return _spec(kind="dflash", mask_token_id=0)
    return _spec(
        kind="dspark",
        mask_token_id=0,
        markov_rank=NUM_TOKENS,
        confidence_head=True,
        confidence_with_markov=True,
    )


def _eagle3_spec() -> DraftSpec:
    return _spec(kind="eagle3", qk_norm=False)


def _spec(**fields) -> DraftSpec:
    """For the target of ``debug=smoke``, whose last token is left out: an output head of one's own."""
    return DraftSpec(
        block_size=7,
        feature_layers=(0, 1),
        num_layers=1,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=12,
        intermediate_size=48,
        vocab_size=NUM_TOKENS,
        draft_vocab_size=NUM_TOKENS - 1,
        num_target_layers=2,
        **fields,
    )
