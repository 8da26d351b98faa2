"""Components are built from names and settings, and only what they are supposed to be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dspark.config import build
from dspark.config.schema import Component, SyntheticTarget
from dspark.policies.fixed import Fixed

if TYPE_CHECKING:
    from pathlib import Path

MODULE = '''
from dataclasses import dataclass

import torch

from dspark.policies.base import Policy
from dspark.types import LosslessClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Even(Policy):
    """Draft an even number of tokens."""

    pairs: int

    @property
    def lossless_class(self):
        return LosslessClass.FIXED

    @property
    def max_depth(self):
        return 2 * self.pairs

    def plan(self, ctx, state):
        return torch.full_like(ctx.slots, 2 * self.pairs)


def make_even(pairs: int):
    return Even(pairs=pairs)
'''


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)
    return "own_policies"


def test_a_policy_by_its_dotted_name() -> None:
    component = Component(target="dspark.policies.fixed.Fixed", settings={"depth": 3})
    assert build.build_policy(component) == Fixed(depth=3)


def test_a_users_policy_needs_no_registration(own_module: str) -> None:
    policy = build.build_policy(Component(target=f"{own_module}.Even", settings={"pairs": 2}))
    assert policy.max_depth == 4
    with pytest.raises(ValueError, match=r"policy.pairs must be a whole number, got 'two'"):
        build.build_policy(Component(target=f"{own_module}.Even", settings={"pairs": "two"}))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "must name a Policy, got 'os.system'"),
        ("dspark.drafters.NgramDrafter", "must name a Policy"),
        ("dspark.policies.fixed.Fixd", "does not exist: dspark.policies.fixed has no 'Fixd'"),
        ("no_such_module.X", "cannot be imported"),
        ("Fixed", "cannot be imported"),
        (None, "must name a class, got null"),
    ],
)
def test_names_that_are_no_policy_are_refused(target: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build.build_policy(Component(target=target, settings={}))


def test_functions_are_taken_from_this_package_only(own_module: str) -> None:
    cost = build.build_cost(
        Component(
            target="dspark.cost.published.published_cost", settings={"name": "smartspec-llama-8b-h100-ngram"}
        )
    )
    assert cost is not None
    with pytest.raises(ValueError, match="must name a Policy"):
        build.build_policy(Component(target=f"{own_module}.make_even", settings={"pairs": 1}))
    with pytest.raises(ValueError, match="must make a Policy"):
        build.build_policy(
            Component(
                target="dspark.cost.published.published_cost",
                settings={"name": "smartspec-llama-8b-h100-ngram"},
            )
        )


def test_none_has_no_settings() -> None:
    assert build.build_drafter(Component(target=None, settings={}), vocab_size=10) is None
    with pytest.raises(ValueError, match="drafter is none, so it has no setting 'min_n'"):
        build.build_drafter(Component(target=None, settings={"min_n": 1}), vocab_size=10)


def test_drafters_get_the_vocabulary_if_they_ask_for_it() -> None:
    synthetic = build.build_drafter(
        Component(target="dspark.drafters.SyntheticDrafter", settings={}), vocab_size=77
    )
    ngram = build.build_drafter(Component(target="dspark.drafters.NgramDrafter", settings={}), vocab_size=77)
    assert [getattr(drafter, "vocab_size", "none") for drafter in (synthetic, ngram)] == [77, None]


def test_a_synthetic_target_is_made_once_a_set_of_sizes(tmp_path: Path) -> None:
    config = SyntheticTarget(
        kind="synthetic",
        family="llama",
        num_layers=1,
        hidden_size=32,
        max_context=64,
        seed=0,
        dtype="float32",
        device="cpu",
        attention="auto",
        cuda_graphs=None,
        kernels="auto",
        cache_dir=tmp_path,
    )
    folder = build.target_folder(config)
    made = (folder / "config.json").stat().st_mtime_ns
    assert build.target_folder(config) == folder
    assert (folder / "config.json").stat().st_mtime_ns == made
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
