"""What tests of training share: a tiny target, answers of its own, and settings with few numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dspark.engine.engine import Engine
from dspark.models.target import HFTarget, load_target
from dspark.training.answers import Answer
from dspark.training.build import draft_spec, new_drafter
from dspark.training.lessons import TargetTeacher
from dspark.training.settings import DraftSettings, LossWeights, TrainSettings
from dspark.training.trainee import Trainee
from dspark.types import SamplingParams

DRAFT = DraftSettings(
    kind="dspark",
    block_size=3,
    num_layers=1,
    feature_layers=(-1, 0),
    num_feature_layers=2,
    intermediate_size=None,
    qk_norm=False,
    vocab_size=None,
    train_head=False,
    mask_token_id=0,
    markov_rank=8,
    markov_head_type="vanilla",
    confidence_head=True,
    confidence_with_markov=True,
    initial_layers=None,
)
WEIGHTS = LossWeights(ce=0.1, soft_ce=0.0, tv=1.8, confidence=1.0, decay=4.0)
NO_HEADS = {"markov_rank": 0, "confidence_head": False, "confidence_with_markov": False}
TRAIN = TrainSettings(
    num_steps=6,
    batch_size=3,
    num_anchors=5,
    learning_rate=2e-3,
    warmup_share=0.2,
    final_share=0.0,
    betas=(0.9, 0.95),
    weight_decay=0.0,
    clip=1.0,
    precision="float32",
    cache_features=False,
    max_answers=None,
    held_out_share=0.3,
    num_eval_answers=2,
    eval_every=3,
    checkpoint_every=2,
    seed=0,
    num_threads=None,
)


def load(folder: Path) -> HFTarget:
    return load_target(folder, device="auto")


def answers_of(
    target: HFTarget, *, count: int = 8, tokens: int = 14, temperature: float = 0.0
) -> list[Answer]:
    """The target's answers to random prompts of different lengths."""
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 256, (3 + 2 * i,), generator=generator).tolist() for i in range(count)]
    params = SamplingParams(max_new_tokens=tokens, temperature=temperature, seed=5)
    done = Engine(target, max_batch_size=4).generate(prompts, params)
    return [
        Answer(
            id=f"random/{i}#T{temperature:g}-0",
            temperature=temperature,
            prompt_ids=completion.prompt_ids,
            token_ids=completion.token_ids,
        )
        for i, completion in enumerate(done)
    ]


def trainee_of(
    target: HFTarget,
    *,
    vocabulary: torch.Tensor | None = None,
    weights: LossWeights = WEIGHTS,
    **changes: Any,
) -> Trainee:
    """A drafter whose heads say something: zeros at the start would hide what they do."""
    size = None if vocabulary is None else len(vocabulary)
    settings = replace(DRAFT, vocab_size=size, **changes)
    spec = draft_spec(settings, target.model.config.get_text_config(), target_name="tiny")
    drafter = new_drafter(spec, settings, target, vocabulary, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if "markov" in name or "confidence" in name:
                parameter.normal_(0, 0.3, generator=generator)
    return Trainee(drafter, TargetTeacher(target, spec.feature_layers).head, weights)
