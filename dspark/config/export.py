"""The settings of `dspark export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dspark.analysis.export.vllm import Method
from dspark.config.typed import construct

READS = {
    "vllm": ("schedule", "method", "model"),
    "sglang": ("schedule", "temperatures", "profile", "depth", "context"),
    "tensorrt_llm": ("schedule",),
    "spec_bench": ("run", "model_id"),
}
"""The settings that an export has a use for, beside ``out``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """What is exported, and where to; null: not given.

    Raises:
        ValueError: a number is out of range.
    """

    schedule: Path | None  # a file that `dspark tune` writes
    temperatures: Path | None  # a file that `dspark calibrate` writes
    profile: Path | None  # a file that `dspark profile` writes
    run: Path | None  # the folder of a `dspark run`
    out: Path | None  # null: stdout
    method: Method | None  # of vLLM
    model: str | None  # the drafter that vLLM loads
    depth: int | None  # of the drafts that the profile's steps verify
    context: int | None  # cached tokens of a row in these steps; null: the middle one measured
    model_id: str | None  # in Spec-Bench; null: target, drafter and policy of the run

    def __post_init__(self) -> None:
        for name, least in (("depth", 1), ("context", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be >= {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """All of the command's configuration.

    Raises:
        ValueError: a setting that this export has no use for, or one that it needs is missing.
    """

    to: Literal["vllm", "sglang", "tensorrt_llm", "spec_bench"]
    export: ExportConfig
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values

    def __post_init__(self) -> None:
        reads = READS[self.to]
        for name in ExportConfig.__slots__:
            if name not in (*reads, "out") and getattr(self.export, name) is not None:
                known = ", ".join(f"export.{setting}" for setting in reads)
                raise ValueError(
                    f"export.{name} sets nothing for to={self.to}, which reads {known}: leave it out"
                )
        if self.to == "sglang":
            self._check_sglang()
            return
        for name in ("run",) if self.to == "spec_bench" else ("schedule",):
            if getattr(self.export, name) is None:
                raise ValueError(f"to={self.to} needs export.{name}: `dspark export --help` says what it is")
        if self.to == "vllm" and self.export.method is None:
            raise ValueError(
                "to=vllm needs export.method, which says how vLLM drafts: set export.method=eagle3"
            )

    def _check_sglang(self) -> None:
        sources = ("schedule", "temperatures", "profile")
        given = [name for name in sources if getattr(self.export, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "to=sglang writes one file, from exactly one of "
                f"{', '.join(f'export.{name}' for name in sources)}, got {' and '.join(given) or 'none'}"
            )
        if given == ["profile"] and self.export.depth is None:
            raise ValueError(
                "export.profile needs export.depth, the drafted tokens of a row: set export.depth=7"
            )
        for name in ("depth", "context"):
            if given != ["profile"] and getattr(self.export, name) is not None:
                raise ValueError(f"export.{name} is of export.profile, got export.{given[0]}: leave it out")


def parse_export(plain: Mapping[str, Any]) -> ExportCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    return construct(ExportCommand, {**plain, "plain": dict(plain)}, "")
