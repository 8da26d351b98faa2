"""What a trained drafter's files say before its weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.config.build import named
from dspark.config.schema import BlockDrafterConfig

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.config.check import ModelFacts
    from dspark.config.schema import TrainedDrafterConfig
    from dspark.drafters.spec import DraftSpec
    from dspark.types import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDrafter:
    """Stands for a trained drafter where policies and rules are checked."""

    signals: frozenset[Signal]
    deterministic: bool
    max_depth: int | None


def drafter_spec(
    config: TrainedDrafterConfig, folder: Path, num_target_layers: int | None = None
) -> DraftSpec:
    """The spec of the drafter in a folder; feature layers that count from the target's depth need that.

    Raises:
        ValueError: no drafter, or one of another kind than the configuration names.
    """
    from dspark.drafters.formats import describe

    spec = named("drafter.source", describe, folder, num_target_layers).spec
    kind = "eagle3" if spec.kind == "eagle3" else "block"
    if config.kind != kind:
        raise ValueError(
            f"drafter.kind {config.kind} does not go with drafter.source, which is of kind {spec.kind}: "
            f"use drafter={kind}"
        )
    return spec


def described(config: TrainedDrafterConfig, folder: Path) -> DescribedDrafter:
    """The drafter as policies see it.

    Raises:
        ValueError: see :func:`drafter_spec`; a block length below 1.
    """
    from dspark.drafters.block import block_signals
    from dspark.drafters.signals import LOGIT_SIGNALS

    if not isinstance(config, BlockDrafterConfig):  # all alike
        return DescribedDrafter(signals=LOGIT_SIGNALS, deterministic=False, max_depth=None)
    spec = drafter_spec(config, folder)
    length = config.block_length
    if length is not None and length < 1:
        raise ValueError(f"drafter.block_length must be >= 1, or null for the trained one, got {length}")
    return DescribedDrafter(
        signals=block_signals(confidence_head=spec.confidence_head),
        deterministic=False,
        max_depth=length or spec.block_size,
    )


def check_fits(config: TrainedDrafterConfig, folder: Path, target: ModelFacts) -> None:
    """Return if the drafter was made for a target of these sizes.

    Raises:
        ValueError: it was not.
    """
    from dspark.drafters.formats import TargetFacts, check_target

    facts = TargetFacts(
        hidden_size=target.hidden_size, vocab_size=target.vocab_size, num_layers=target.num_layers
    )
    spec = drafter_spec(config, folder, target.num_layers)
    named("drafter.source", check_target, spec, facts)
