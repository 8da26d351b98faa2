"""Where an EAGLE-3 head puts its norms: the checkpoints in use differ in this and in nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Norms:
    """Switches of https://github.com/vllm-project/speculators; all off is EAGLE-3 itself.

    Raises:
        ValueError: features would be normed twice.
    """

    before_residual: bool = False  # the residual is g after its norm (norm_before_residual)
    before_fc: bool = False  # one norm over all features side by side (norm_before_fc, ``input_norm``)
    each_feature: bool = False  # a norm for each layer's features (fc_norm)
    output: bool = False  # the chain goes on from y after the last norm (norm_output)

    def __post_init__(self) -> None:
        if self.before_fc and self.each_feature:
            raise ValueError(
                "norm_before_fc and fc_norm both norm the features; a head has one of them, got both true"
            )

    @property
    def any(self) -> bool:
        """True where the head differs from EAGLE-3 itself."""
        return self.before_residual or self.before_fc or self.each_feature or self.output
