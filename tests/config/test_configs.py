"""Every YAML composes, is typed, builds, and lists every field of what it stands for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml

from dspark.config import build
from dspark.config.compose import to_plain
from dspark.config.paths import config_dir
from dspark.config.schema import (
    ArrivalsConfig,
    BlockDrafterConfig,
    CompareConfig,
    Component,
    DraftModelConfig,
    Eagle3DrafterConfig,
    EngineConfig,
    LatencyBound,
    PretrainedTarget,
    SyntheticTarget,
    TrackerConfig,
    parse_config,
)
from dspark.config.train import AnswersConfig, PromptsConfig, parse_train
from dspark.config.typed import parameters_of
from dspark.training.settings import DraftSettings, LossWeights, TrainSettings
from dspark.types import SamplingParams
from dspark.workload.prompts import PromptSpec

CONFIGS = config_dir()
GROUPS = ("target", "drafter", "policy", "verification", "workload", "engine", "cost", "tracker")
OPTIONS = [(path.parent.name, path.stem) for path in sorted(CONFIGS.glob("*/*.yaml"))]
IN_GROUPS = [(group, option) for group, option in OPTIONS if group in GROUPS]
WHOLE = [(group, option) for group, option in OPTIONS if group in ("experiment", "debug")]

MANDATORY = {
    ("target", "pretrained"): ["target.source=smollm2"],
    ("drafter", "draft_model"): ["drafter.source=smollm2"],
    ("drafter", "block"): ["drafter.source=org/drafter"],
    ("drafter", "eagle3"): ["drafter.source=org/drafter"],
    ("cost", "constant"): ["cost.target_s=0.01"],
    ("cost", "step_table"): ["cost.tokens=[1,8]", "cost.target_s=[0.1,0.2]"],
    ("cost", "profile"): [f"cost.path={Path(__file__).parents[1] / 'cost' / 'profile_schema_1.json'}"],
    ("cost", "linear"): ["cost.target_fixed_s=0.01", "cost.target_kv_s=0.0", "cost.target_token_s=0.0"],
}
"""What an option wants from the command line."""

SHAPES: dict[str, tuple[type, ...]] = {
    "target": (PretrainedTarget, SyntheticTarget),
    "engine": (EngineConfig,),
}


def _yaml(group: str, option: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIGS / group / f"{option}.yaml").read_text(encoding="utf-8"))


def _fields(cls: type) -> set[str]:
    return {item.name for item in fields(cls)}


def test_every_group_of_the_design_is_there() -> None:
    assert {group for group, _ in OPTIONS} >= {*GROUPS, "debug"}


@pytest.mark.parametrize(("group", "option"), IN_GROUPS)
def test_an_option_lists_every_field(group: str, option: str) -> None:
    node = _yaml(group, option)
    keys = set(node)
    if "_target_" in node:
        if node["_target_"] is None:
            assert keys == {"_target_"}
            return
        make = build._import(node["_target_"], group)
        given_by_the_run = {"vocab_size"} if group == "drafter" else set()
        assert keys - {"_target_"} == set(parameters_of(make)) - given_by_the_run
    elif group == "workload":
        assert keys == _fields(PromptSpec) | {"chat_template", "arrivals"}
        assert set(node["arrivals"]) == _fields(ArrivalsConfig)
    elif group == "tracker":
        assert keys == ({"kind"} if option == "none" else _fields(TrackerConfig))
    elif group == "drafter":
        shapes = {"draft_model": DraftModelConfig, "block": BlockDrafterConfig, "eagle3": Eagle3DrafterConfig}
        assert keys == _fields(shapes[node["kind"]])
    else:
        assert keys in [_fields(cls) for cls in SHAPES[group]]


def test_the_common_nodes_list_every_field() -> None:
    common = yaml.safe_load((CONFIGS / "common.yaml").read_text(encoding="utf-8"))
    assert set(common["sampling"]) == _fields(SamplingParams)
    assert set(common["goodput"]) == _fields(LatencyBound)
    compare = yaml.safe_load((CONFIGS / "compare.yaml").read_text(encoding="utf-8"))
    assert set(compare["compare"]) == _fields(CompareConfig)


@pytest.mark.parametrize(
    ("command", "group", "option"),
    [("run", *each) for each in IN_GROUPS]
    + [("compare", *each) for each in IN_GROUPS if each[0] != "policy"],
)
@pytest.mark.usefixtures("hydra_ready")
def test_an_option_composes_into_a_typed_config(command: str, group: str, option: str) -> None:
    overrides = [f"{group}={option}", *MANDATORY.get((group, option), [])]
    config = parse_config(to_plain(hydra.compose(command, overrides=overrides)))
    for name, make in (("policy", build.build_policy), ("verification", build.build_verification)):
        if isinstance(getattr(config, name), Component):
            assert make(getattr(config, name)) is not None
    built = build.build_cost(config.cost)
    assert (built is None) == (config.cost.target is None)
    if isinstance(config.drafter, Component):
        drafter = build.build_drafter(config.drafter, vocab_size=300)
        assert (drafter is None) == (option == "none" and group == "drafter")


@pytest.mark.parametrize(("group", "option"), WHOLE)
@pytest.mark.usefixtures("hydra_ready")
def test_experiment_and_debug_files_compose_with_their_command(group: str, option: str) -> None:
    text = (CONFIGS / group / f"{option}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# @package _global_\n")
    commands = [name for name in ("run", "compare", "train") if f"dspark {name} {group}={option}" in text]
    assert commands, "the file names no command in a comment"
    for command in commands:
        parse = parse_train if command == "train" else parse_config
        parse(to_plain(hydra.compose(command, overrides=[f"{group}={option}"])))


def test_the_sections_of_a_training_list_every_field() -> None:
    sections = {
        "prompts": PromptsConfig,
        "answers": AnswersConfig,
        "draft": DraftSettings,
        "loss": LossWeights,
        "train": TrainSettings,
    }
    train = yaml.safe_load((CONFIGS / "train.yaml").read_text(encoding="utf-8"))
    assert {name: set(train[name]) for name in sections} == {
        name: _fields(section) for name, section in sections.items()
    }


@pytest.mark.usefixtures("hydra_ready")
def test_the_order_of_defaults_lets_later_files_win() -> None:
    # with `_self_` last, a primary config would overwrite what an experiment or debug file sets
    config = hydra.compose("compare", overrides=["debug=smoke"])
    smoke = _yaml("debug", "smoke")
    assert config.sampling.max_new_tokens == smoke["sampling"]["max_new_tokens"]
    assert config.workload.num_requests == smoke["workload"]["num_requests"]
    assert config.target.kind == "synthetic"


@pytest.mark.usefixtures("hydra_ready")
def test_compare_is_coupled_and_run_samples_by_rejection() -> None:
    rules = {name: hydra.compose(name).verification["_target_"] for name in ("run", "compare")}
    assert rules == {"run": "dspark.verification.Rejection", "compare": "dspark.verification.Coupled"}
    assert all(hydra.compose(name).engine.numerics == "fast" for name in rules)
