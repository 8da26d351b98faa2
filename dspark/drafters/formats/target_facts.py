"""Whether a drafter belongs to a target: by sizes before anything loads, by its tables afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.drafters.spec import DraftSpec
    from dspark.models.target import HFTarget

_SCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "embedding_multiplier", "scale_emb")
"""What some models do to embeddings or logits; a drafter that shares the tables would have to do it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """Sizes of a target that its drafter must know."""

    hidden_size: int
    vocab_size: int
    num_layers: int

    @classmethod
    def of(cls, target: HFTarget) -> TargetFacts:
        """The facts of a loaded target."""
        config = target.model.config.get_text_config()
        return cls(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            num_layers=config.num_hidden_layers,
        )


def check_target(spec: DraftSpec, target: TargetFacts) -> None:
    """Return if a drafter of this spec can draft for a target of these sizes.

    Raises:
        ValueError: it was made for another target.
    """
    last = max(spec.feature_layers)
    checks = (
        ("hidden size", spec.hidden_size, target.hidden_size, spec.hidden_size == target.hidden_size),
        ("vocabulary", spec.vocab_size, target.vocab_size, spec.vocab_size == target.vocab_size),
        (
            "number of layers",
            spec.num_target_layers,
            target.num_layers,
            spec.num_target_layers in (None, target.num_layers),
        ),
        ("last feature layer", last, target.num_layers - 1, last < target.num_layers),
    )
    for what, ours, theirs, holds in checks:
        if not holds:
            made_for = f", made for {spec.target_name}," if spec.target_name else ""
            raise ValueError(
                f"the drafter{made_for} does not fit the target: its {what} is {ours}, the target's "
                f"{theirs}; use a drafter that was trained for this target"
            )


def target_tables(target: HFTarget) -> tuple[Tensor, Tensor]:
    """The target's embedding [V, d] and output head [V, d], which its drafters share.

    Raises:
        ValueError: the target does more than look up and multiply there.
    """
    model: Any = target.model
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    config = model.config.get_text_config()
    scaled = [key for key in _SCALES if getattr(config, key, None) not in (None, 1, 1.0)]
    if getattr(embedding, "embed_scale", 1.0) != 1.0:
        scaled.append("embed_scale")
    if getattr(head, "bias", None) is not None:
        scaled.append("a bias of the output head")
    if scaled:
        raise ValueError(
            f"a drafter cannot share the tables of {target.name}, which has {', '.join(scaled)}; "
            "use a target without"
        )
    return embedding.weight.detach(), head.weight.detach()
