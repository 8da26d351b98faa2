"""What a drafter is made of and how it is trained: the sections of `dspark train` that `training` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import Literal

# annotations of settings are read at run time
from dspark.drafters.spec import DraftKind, MarkovHeadType  # noqa: TC001

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """The drafter's sizes; what is None is taken from the target.

    Raises:
        ValueError: a number is out of range, or a combination that no drafter can have.
    """

    kind: DraftKind
    block_size: int  # drafts of a block; for eagle3 the length of the chains, "ttt_length"
    num_layers: int
    feature_layers: tuple[int, ...] | None  # None: `num_feature_layers`, spread over the target
    num_feature_layers: int
    intermediate_size: int | None
    qk_norm: bool  # norms on queries and keys (Qwen 3); layers that start as a Llama target's have none
    vocab_size: int | None  # the most frequent tokens of the answers; None: all
    train_head: bool  # False: the output head stays the target's
    mask_token_id: int | None  # a token that no text holds; block drafters need one
    markov_rank: int  # 0: no sequential head
    markov_head_type: MarkovHeadType
    confidence_head: bool
    confidence_with_markov: bool
    initial_layers: tuple[int, ...] | None  # layers of the target that the drafter's start as; None: random
    start_from: Path | None = None  # folder of a drafter of these sizes that is trained further

    def __post_init__(self) -> None:
        for name in ("block_size", "num_layers", "num_feature_layers", "intermediate_size", "vocab_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        if self.kind == "dflash" and (self.markov_rank or self.confidence_head):
            raise ValueError(
                "a dflash drafter has no heads, got markov_rank "
                f"{self.markov_rank} and confidence_head {self.confidence_head}: set 0 and false, or "
                "kind=dspark"
            )
        if self.kind == "eagle3" and (self.markov_rank or self.confidence_head or self.num_layers != 1):
            raise ValueError(
                "an eagle3 drafter has 1 layer and no heads, got "
                f"num_layers {self.num_layers}, markov_rank {self.markov_rank} and confidence_head "
                f"{self.confidence_head}: set 1, 0 and false"
            )
        if self.kind != "eagle3" and self.mask_token_id is None:
            raise ValueError(
                f"a {self.kind} drafter needs mask_token_id, a token that no text holds, got null: "
                "pad or end tokens will not do, because they have a meaning"
            )
        if self.vocab_size is None and self.train_head:
            raise ValueError(
                "train_head=true needs a reduced vocabulary (vocab_size), because the whole head is the "
                "target's"
            )
        if self.initial_layers is not None and len(self.initial_layers) != self.num_layers:
            raise ValueError(
                f"initial_layers must name one layer of the target for each of the {self.num_layers} layers, "
                f"got {list(self.initial_layers)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of the losses' terms, and of positions.

    DSpark's recipe (DeepSpec, ``modeling/dspark/loss.py``) is ce 0.1, confidence 1, 0.9 times the whole
    L1 distance, which is tv 1.8 here, and decay 4. EAGLE-3's is soft_ce 1 with 0.8^k, decay 4.48.

    Raises:
        ValueError: a weight is negative, all are 0, or the decay is not positive.
    """

    ce: float  # cross entropy with the answer's token
    soft_ce: float  # cross entropy with the target's law
    tv: float  # total variation distance, half of L1
    confidence: float  # of the confidence head against 1 - tv
    decay: float  # draft k weighs exp(-k / decay)

    def __post_init__(self) -> None:
        for name in ("ce", "soft_ce", "tv", "confidence"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not self.ce + self.soft_ce + self.tv:
            raise ValueError("ce, soft_ce or tv must be > 0, got 0 for all: the drafter would learn nothing")
        if self.decay <= 0:
            raise ValueError(f"decay must be > 0, got {self.decay}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How long, how fast and on what.

    Raises:
        ValueError: a number is out of range.
    """

    num_steps: int
    batch_size: int  # answers a step, over all processes
    num_anchors: int  # of an answer, at most
    learning_rate: float
    warmup_share: float  # of the steps
    final_share: float  # of the learning rate, at the end of the cosine
    betas: tuple[float, float]
    weight_decay: float
    clip: float  # largest norm of the gradient
    precision: Precision  # auto: bfloat16 on a GPU, float32 on a CPU
    cache_features: bool  # keep the target's features on disk; false: compute them in every step
    max_answers: int | None  # None: all there are
    held_out_share: float  # of the prompts, for evaluation
    num_eval_answers: int
    eval_every: int  # steps; also after the last
    checkpoint_every: int
    seed: int
    num_threads: int | None

    def __post_init__(self) -> None:
        least = {
            "num_steps": 1, "batch_size": 1, "num_anchors": 1, "eval_every": 1, "checkpoint_every": 1,
            "num_eval_answers": 1, "max_answers": 2, "num_threads": 1, "seed": 0, "weight_decay": 0,
        }  # fmt: skip
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"{name} must be >= {lowest}, got {value}")
        for name in ("learning_rate", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("warmup_share", "final_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if not 0 < self.held_out_share < 1:
            raise ValueError(f"held_out_share must be in (0, 1), got {self.held_out_share}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {list(self.betas)}")
