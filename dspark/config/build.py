"""From typed configuration to objects: one function a kind, nothing loads a model but ``load_*``."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dspark.config.schema import (
    BlockDrafterConfig,
    Component,
    Config,
    DraftModelConfig,
    SyntheticTarget,
    TargetConfig,
    TrainedDrafterConfig,
)
from dspark.config.typed import construct, parameters_of
from dspark.drafters.shipped import local_source
from dspark.models.sources import default_cache_dir, resolve_source
from dspark.workload.arrivals import Arrivals, ClosedLoop, Poisson

if TYPE_CHECKING:
    from dspark.config.schema import EngineConfig, WorkloadConfig
    from dspark.cost.base import CostModel
    from dspark.drafters.base import Drafter
    from dspark.engine.clock import Clock
    from dspark.models.target import HFTarget, Numerics
    from dspark.policies.base import Policy
    from dspark.verification.base import Verification

T = TypeVar("T")


def build_component(
    component: Component, base: type[T], where: str, provided: Mapping[str, Any] | None = None
) -> T | None:
    """What a component describes, or None where it describes nothing.

    This is the only place that turns a name from the configuration into code. It takes subclasses
    of ``base``, and functions of this package that return one.

    Args:
        component: dotted name and settings.
        base: what it must be.
        where: its place in the configuration.
        provided: parameters that the run knows, such as ``vocab_size``; used by classes that have them.

    Raises:
        ValueError: no such name, not a ``base``, or settings that it refuses.
    """
    if component.target is None:
        if component.settings:
            raise ValueError(f"{where} is none, so it has no setting {next(iter(component.settings))!r}")
        return None
    make = _import(component.target, where)
    is_class = isinstance(make, type) and issubclass(make, base)
    is_ours = not isinstance(make, type) and callable(make) and component.target.startswith("dspark.")
    if not is_class and not is_ours:
        raise ValueError(f"{where}._target_ must name a {base.__name__}, got {component.target!r}")
    known = parameters_of(make)
    extra = {key: value for key, value in (provided or {}).items() if key in known}
    built = construct(make, {**extra, **component.settings}, where)
    if not isinstance(built, base):
        raise ValueError(f"{where}._target_ must make a {base.__name__}, got {component.target!r}")
    return built


def build_policy(component: Component, where: str = "policy") -> Policy:
    """The depth policy.

    Raises:
        ValueError: see ``build_component``.
    """
    from dspark.policies.base import Policy

    return _required(build_component(component, Policy, where), where)


def build_verification(component: Component) -> Verification:
    """The verification rule.

    Raises:
        ValueError: see ``build_component``.
    """
    from dspark.verification.base import Verification

    return _required(build_component(component, Verification, "verification"), "verification")


def build_cost(component: Component) -> CostModel | None:
    """The cost model, or None.

    Raises:
        ValueError: see ``build_component``.
    """
    from dspark.cost.base import CostModel

    return build_component(component, CostModel, "cost")


def build_clock(config: EngineConfig, cost: CostModel | None) -> Clock | None:
    """A new modelled clock, or None where the wall counts.

    Raises:
        ValueError: a modelled clock without a cost model.
    """
    if config.clock == "wall":
        return None
    if cost is None:
        raise ValueError(
            "engine.clock=modelled needs a cost model, because its seconds are those that the model gives, "
            "got cost=none: choose cost=published or cost=roofline, or measure one with `dspark profile`"
        )
    from dspark.engine.clock_modelled import ModelledClock

    return ModelledClock(cost)


def build_drafter(component: Component, *, vocab_size: int) -> Drafter | None:
    """A drafter that needs no model, or None.

    Raises:
        ValueError: see ``build_component``.
    """
    from dspark.drafters.base import Drafter

    return build_component(component, Drafter, "drafter", {"vocab_size": vocab_size})


def build_arrivals(config: WorkloadConfig, *, batch_size: int) -> Arrivals:
    """When the requests of a run arrive.

    Raises:
        ValueError: an arrival rate that is not positive.
    """
    if config.arrivals.rate_per_s is None:
        return ClosedLoop(batch_size=batch_size)
    return construct(Poisson, asdict(config.arrivals), "workload.arrivals")


def target_folder(config: TargetConfig) -> Path:
    """The local folder of the target; converts, downloads or makes it the first time.

    Raises:
        ValueError: the source does not exist or cannot be had.
    """
    if isinstance(config, SyntheticTarget):
        return _synthetic_folder(config)
    return named("target.source", resolve_source, config.source, cache_dir=config.cache_dir)


def draft_folder(config: DraftModelConfig | TrainedDrafterConfig, target: TargetConfig) -> Path:
    """The local folder of the drafter; the target's own where it drafts for itself.

    Raises:
        ValueError: the source does not exist or cannot be had.
    """
    if config.source is None:
        return target_folder(target)
    source = local_source(config.source)
    return named("drafter.source", resolve_source, source, cache_dir=target.cache_dir)


def load_target(config: Config, folder: Path) -> HFTarget:
    """The target with its weights; also sets the number of threads.

    Raises:
        ValueError: a device or model that is not supported.
    """
    import torch

    from dspark.models import target

    if config.engine.num_threads is not None:
        torch.set_num_threads(config.engine.num_threads)
    name = config.target.family if isinstance(config.target, SyntheticTarget) else config.target.source
    return target.load_target(
        folder,
        dtype=config.target.dtype,
        device=config.target.device,
        numerics=config.engine.numerics,
        name=name,
        attention=config.target.attention,
        cuda_graphs=config.target.cuda_graphs,
        kernels=config.target.kernels,
    )


def load_draft_model(config: DraftModelConfig, folder: Path, target: HFTarget) -> Drafter:
    """A draft model with its weights, as a drafter: device, numerics and attention are the target's.

    Raises:
        ValueError: a model that is not supported.
    """
    from dspark.drafters.draft_model import DraftModelDrafter
    from dspark.models.attention_choice import kind_of
    from dspark.models.target import load_target

    if config.source is None:
        return DraftModelDrafter(target)  # one set of weights, two caches
    return DraftModelDrafter(
        load_target(
            folder,
            dtype=config.dtype,
            device=target.device.type,
            numerics=cast("Numerics", target.numerics),
            attention=kind_of(target.attention),
            cuda_graphs=False if target.graphs is None else None,
            kernels="torch" if target.kernels == "torch" else "auto",
        )
    )


def load_trained_drafter(config: TrainedDrafterConfig, folder: Path, target: HFTarget) -> Drafter:
    """A trained drafter with its weights, on the target's device and with the target's tables.

    Raises:
        ValueError: it was trained for another target, or its folder is not what it says.
    """
    from dspark.drafters.block import BlockDrafter
    from dspark.drafters.block_model import BlockBackbone
    from dspark.drafters.eagle3 import Eagle3Drafter
    from dspark.drafters.formats import load_drafter_folder

    model = named("drafter.source", load_drafter_folder, folder, target)
    kernels = None if target.native is None else target.native.kernels
    if isinstance(model, BlockBackbone):
        block_length = config.block_length if isinstance(config, BlockDrafterConfig) else None
        return BlockDrafter(model, block_length, kernels)
    return Eagle3Drafter(model, kernels)


def _synthetic_folder(config: SyntheticTarget) -> Path:
    """Made once a set of sizes; the rename keeps a stopped or parallel run from leaving half of it."""
    from dspark.models.synthetic import make_synthetic_target

    names = ("family", "num_layers", "hidden_size", "max_context", "seed")
    sizes = {name: getattr(config, name) for name in names}
    key = hashlib.sha256(json.dumps(sizes).encode()).hexdigest()[:12]
    folder = (config.cache_dir or default_cache_dir()) / "synthetic" / f"{config.family}-{key}"
    if not (folder / "config.json").is_file():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        named("target", make_synthetic_target, partial, **sizes)
        try:
            partial.rename(folder)
        except OSError:  # another run was first
            shutil.rmtree(partial)
    return folder


def _import(name: str, where: str) -> Any:
    module_name, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{where}._target_ {name!r} cannot be imported: {error}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"{where}._target_ {name!r} does not exist: {module_name} has no {attribute!r}")
    return getattr(module, attribute)


def _required(built: T | None, where: str) -> T:
    if built is None:
        raise ValueError(f"{where}._target_ must name a class, got null")
    return built


def named(where: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """The function's result; its ValueErrors say where in the configuration they come from."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
