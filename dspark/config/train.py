"""The typed configuration of `dspark train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dspark.config.schema import TargetConfig, TrackerConfig, target_config
from dspark.config.typed import construct
from dspark.training.answers import AnswerSettings
from dspark.training.settings import DraftSettings, LossWeights, TrainSettings
from dspark.training.sources import PromptSource

Stage = Literal["all", "answers", "train"]
Layout = Literal["deepspec", "speculators"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsConfig:
    """Where prompts come from."""

    folder: Path | None  # local files of the sources; None: their paths
    sources: tuple[PromptSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """How the target answers, and where that is kept."""

    folder: Path | None  # None: training/<target> of the cache
    temperatures: tuple[float, ...]
    top_p: float
    max_new_tokens: int
    batch_size: int
    max_prompt_tokens: int | None
    seed: int

    @property
    def settings(self) -> AnswerSettings:
        """Without the folder."""
        values = asdict(self)
        del values["folder"]
        return AnswerSettings(**values)

    def __post_init__(self) -> None:
        _ = self.settings  # refuses what is out of range


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCommand:
    """All of the command's configuration."""

    stage: Stage
    target: TargetConfig
    prompts: PromptsConfig
    answers: AnswersConfig
    draft: DraftSettings
    loss: LossWeights
    train: TrainSettings
    layout: Layout  # of the drafter's folder
    tracker: TrackerConfig
    resume: bool
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values, for provenance

    def __post_init__(self) -> None:
        if self.loss.confidence and not self.draft.confidence_head:
            raise ValueError(
                f"loss.confidence={self.loss.confidence} trains a head that the drafter lacks: "
                "set draft.confidence_head=true or loss.confidence=0"
            )
        if self.draft.confidence_head and not self.loss.confidence:
            raise ValueError(
                "draft.confidence_head=true needs loss.confidence > 0, got 0: the head would stay random"
            )
        if self.layout == "deepspec" and self.draft.vocab_size is not None:
            raise ValueError(
                "layout=deepspec has no map for a reduced vocabulary "
                f"(draft.vocab_size={self.draft.vocab_size}): use layout=speculators"
            )


def parse_train(plain: Mapping[str, Any]) -> TrainCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    values = {key: target_config(node, key) if key == "target" else node for key, node in plain.items()}
    return construct(TrainCommand, {**values, "plain": dict(plain)}, "")
