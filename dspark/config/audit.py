"""The settings of `dspark audit`, and its typed configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dspark.config.schema import Component, TargetConfig, component, target_config
from dspark.config.typed import construct


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """What is audited, on what, and how thoroughly.

    Raises:
        ValueError: a number is negative, or the list of policies is empty or repeats one.
    """

    policies: tuple[str, ...] | None  # entries as in compare.policies, "all"; None: the one policy=NAME
    case: Literal["all", "appendix_a", "sampled_drop", "tetris", "random", "traces"]
    drafter: Literal["sampled", "deterministic"]
    num_random: int  # random worlds
    num_hunted: int  # random decisions in which a bias is hunted for
    num_probed: int  # random steps of the influence test
    trace_steps: int  # of the engine; 0: no perturbation test
    trace_redraws: int  # tokens drawn anew in them
    seed: int

    def __post_init__(self) -> None:
        for name in ("num_random", "num_hunted", "num_probed", "trace_steps", "trace_redraws", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if self.policies is not None and not self.policies:
            raise ValueError("policies must name at least one, got an empty list")
        if self.policies is not None and len(set(self.policies)) < len(self.policies):
            raise ValueError(f"policies must not repeat an entry, got {list(self.policies)}")
        if self.case == "traces" and self.trace_steps == 0:
            raise ValueError("case=traces needs trace_steps >= 1, got 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand:
    """All of the command's configuration."""

    policy: Component
    verification: Component
    target: TargetConfig  # of the perturbation test
    audit: AuditConfig
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values, for provenance


def parse_audit(plain: Mapping[str, Any]) -> AuditCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    parsers = {"policy": component, "verification": component, "target": target_config}
    values = {key: parsers[key](node, key) if key in parsers else node for key, node in plain.items()}
    return construct(AuditCommand, {**values, "plain": dict(plain)}, "")
