"""The typed configuration: one frozen dataclass a group, made from the composed YAML.

Groups with one shape are dataclasses here. Policies, verification rules, cost models and drafters
that are made from their settings alone are ``Component`` nodes: ``_target_`` names the class, and
the class's own parameters are the schema. So a new policy needs no line in this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from dspark.config.calibrate import CalibrateConfig
from dspark.config.profile import ProfileConfig
from dspark.config.record import RecordConfig
from dspark.config.typed import construct, did_you_mean
from dspark.types import SamplingParams
from dspark.workload.prompts import PromptSpec

Dtype = Literal["float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
Attention = Literal["auto", "sdpa", "varlen", "varlen_reference"]
Kernels = Literal["auto", "native", "torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedTarget:
    """A model by source: ``smollm2``, a folder, a .gguf file or a hub id."""

    kind: Literal["pretrained"]
    source: str
    dtype: Dtype
    device: Device
    attention: Attention
    cuda_graphs: bool | None  # None: where the attention is the CUDA kernel
    kernels: Kernels  # of float32 on a CPU
    cache_dir: Path | None  # where converted models are kept; None: DSPARK_CACHE or ~/.cache/dspark


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTarget:
    """A tiny random model, for dry runs and tests."""

    kind: Literal["synthetic"]
    family: Literal["llama", "qwen3", "gemma2", "gemma3", "gpt_oss"]
    num_layers: int
    hidden_size: int
    max_context: int
    seed: int
    dtype: Dtype
    device: Device
    attention: Attention
    cuda_graphs: bool | None
    kernels: Kernels
    cache_dir: Path | None


TargetConfig = PretrainedTarget | SyntheticTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelConfig:
    """A second causal model that shares the target's vocabulary; on the target's device."""

    kind: Literal["draft_model"]
    source: str | None  # None: the target drafts for itself
    dtype: Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDrafterConfig:
    """A trained DSpark or DFlash drafter, by folder or hub id; on the target's device and in its dtype."""

    kind: Literal["block"]
    source: str
    block_length: int | None  # drafts of a block; None: as trained. Others change all drafts of a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3DrafterConfig:
    """A trained EAGLE-3 drafter, by folder or hub id; on the target's device and in its dtype."""

    kind: Literal["eagle3"]
    source: str


TrainedDrafterConfig = BlockDrafterConfig | Eagle3DrafterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A class, by dotted name, and its parameters; ``target`` None stands for "none"."""

    target: str | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalsConfig:
    """When requests arrive."""

    rate_per_s: float | None  # of a Poisson process; None: all wait from the start
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """Which prompts run, how they are encoded, and when they arrive."""

    prompts: PromptSpec
    chat_template: bool
    arrivals: ArrivalsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The engine's own settings.

    Raises:
        ValueError: a number is below 1, or the seed negative.
    """

    max_batch_size: int  # `compare` takes its batch sizes from compare.batch_sizes
    max_tokens_per_row: int | None  # None: what the longest request needs
    prefill_chunk: int
    numerics: Literal["fast", "invariant"]
    num_threads: int | None  # None: torch's default
    seed: int
    clock: Literal["wall", "modelled"]  # modelled: charges the seconds of the cost model

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_tokens_per_row", "prefill_chunk", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerConfig:
    """Where a run is mirrored to."""

    kind: Literal["none", "wandb"]
    project: str = "dspark"
    name: str | None = None
    tags: tuple[str, ...] = ()
    mode: Literal["auto", "online", "offline"] = "auto"  # auto: online where an API key is set


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBound:
    """What counts as good in goodput; both or none."""

    max_ttft_s: float | None
    max_tpot_s: float | None

    def __post_init__(self) -> None:
        if (self.max_ttft_s is None) != (self.max_tpot_s is None):
            raise ValueError("goodput needs both max_ttft_s and max_tpot_s, got one of them")

    @property
    def as_pair(self) -> tuple[float, float] | None:
        """Both bounds, or None."""
        if self.max_ttft_s is None or self.max_tpot_s is None:
            return None
        return self.max_ttft_s, self.max_tpot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """What is compared.

    Raises:
        ValueError: nothing to compare, a batch size or the number of repeats is below 1, or something
            is listed twice.
    """

    policies: tuple[str, ...]  # "NAME [VALUE] [key=value ...]"
    batch_sizes: tuple[int, ...]
    repeats: int
    baseline: str | None  # the policy that ratios refer to; added where the list lacks it

    def __post_init__(self) -> None:
        for name in ("policies", "batch_sizes"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} must name at least one, got an empty list")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must not repeat an entry, got {list(values)}")
        if min(self.batch_sizes) < 1:
            raise ValueError(f"batch_sizes must be >= 1, got {list(self.batch_sizes)}")
        if self.repeats < 1:
            raise ValueError(f"repeats must be >= 1, got {self.repeats}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of a command's configuration.

    ``policy`` belongs to ``run``; the other sections to the commands of their name.
    """

    target: TargetConfig
    drafter: DraftModelConfig | TrainedDrafterConfig | Component
    verification: Component
    sampling: SamplingParams
    workload: WorkloadConfig
    engine: EngineConfig
    cost: Component
    tracker: TrackerConfig
    goodput: LatencyBound
    resume: bool
    policy: Component | None = None
    compare: CompareConfig | None = None
    calibrate: CalibrateConfig | None = None
    profile: ProfileConfig | None = None
    record: RecordConfig | None = None
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values, for provenance


def parse_config(plain: Mapping[str, Any]) -> Config:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    known = [item.name for item in fields(Config) if item.name != "plain"]
    for key in plain:
        if key not in known:
            raise ValueError(f"the configuration has no {key!r}: it has {', '.join(known)}")
    values = {key: _PARSERS[key](node, key) if key in _PARSERS else node for key, node in plain.items()}
    return construct(Config, {**values, "plain": dict(plain)}, "")


def component(node: Any, where: str) -> Component:
    """The component that a node with ``_target_`` describes.

    Raises:
        ValueError: the node has no ``_target_``.
    """
    settings = _mapping(node, where)
    if "_target_" not in settings:
        given = ", ".join(settings) or "nothing"
        raise ValueError(f"{where} needs _target_, the class to build, got {given}")
    target = settings.pop("_target_")
    if target is not None and not isinstance(target, str):
        raise ValueError(f"{where}._target_ must be the dotted name of a class, got {target!r}")
    return Component(target=target, settings=settings)


def target_config(node: Any, where: str) -> TargetConfig:
    """The target that a node with ``kind`` describes.

    Raises:
        ValueError: no such kind, or settings that it refuses.
    """
    return _by_kind(node, where, {"pretrained": PretrainedTarget, "synthetic": SyntheticTarget})


def _drafter(node: Any, where: str) -> DraftModelConfig | TrainedDrafterConfig | Component:
    if "kind" in _mapping(node, where):
        kinds = {"draft_model": DraftModelConfig, "block": BlockDrafterConfig, "eagle3": Eagle3DrafterConfig}
        return _by_kind(node, where, kinds)
    return component(node, where)


def _workload(node: Any, where: str) -> WorkloadConfig:
    spec = _mapping(node, where)
    own = {key: spec.pop(key) for key in ("chat_template", "arrivals") if key in spec}
    return construct(WorkloadConfig, {**own, "prompts": construct(PromptSpec, spec, where)}, where)


def _by_kind(node: Any, where: str, table: Mapping[str, Callable[..., Any]]) -> Any:
    """The class that the node's ``kind`` stands for, made from the node."""
    settings = _mapping(node, where)
    kind = str(settings.get("kind"))
    if kind not in table:
        hint = did_you_mean(kind, table)
        raise ValueError(f"{where}.kind must be one of {', '.join(table)}, got {kind!r}{hint}")
    return construct(table[kind], settings, where)


def _mapping(node: Any, where: str) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise ValueError(f"{where} must be a mapping of settings, got {node!r}")
    return dict(node)


_PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    "target": target_config,
    "drafter": _drafter,
    "workload": _workload,
    "policy": component,
    "verification": component,
    "cost": component,
}
