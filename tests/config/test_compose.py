"""Entries of compare.policies, labels, and Hydra's errors in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hydra
import pytest
from hydra.errors import HydraException

from dspark.config.compose import (
    PolicyEntry,
    compose_policy,
    one_line,
    parse_entry,
    policy_label,
    to_plain,
)
from dspark.config.paths import config_dir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fixed", PolicyEntry(option="fixed", value=None, overrides=())),
        ("fixed 0", PolicyEntry(option="fixed", value="0", overrides=())),
        ("  fixed   4 ", PolicyEntry(option="fixed", value="4", overrides=())),
        ("fixed depth=4", PolicyEntry(option="fixed", value=None, overrides=("depth=4",))),
        (
            "confidence 0.6 depth=8 stop=before",
            PolicyEntry(option="confidence", value="0.6", overrides=("depth=8", "stop=before")),
        ),
        (
            "batch_table [[1, 4, 4], [5, 8, 2]] hysteresis=1",
            PolicyEntry(option="batch_table", value="[[1, 4, 4], [5, 8, 2]]", overrides=("hysteresis=1",)),
        ),
        (
            "batch_table ranges=null draft_len_schedule={4: 4, 8: 2}",
            PolicyEntry(
                option="batch_table", value=None, overrides=("ranges=null", "draft_len_schedule={4: 4, 8: 2}")
            ),
        ),
    ],
)
def test_entries(text: str, expected: PolicyEntry) -> None:
    assert parse_entry(text) == expected


@pytest.mark.parametrize("text", ["", "depth=4", "fixed 0 4", "fixed depth=4 4"])
def test_entries_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an entry of compare.policies is"):
        parse_entry(text)


@pytest.mark.parametrize(
    ("text", "label", "settings"),
    [
        ("fixed 0", "fixed 0", {"depth": 0}),
        ("fixed depth=0", "fixed 0", {"depth": 0}),
        ("fixed", "fixed 4", {"depth": 4}),
        ("confidence", "confidence", {"threshold": 0.4}),
        ("confidence 0.6", "confidence 0.6", {"threshold": 0.6}),
        ("confidence depth=3 threshold=0.5", "confidence 0.5 depth=3", {"depth": 3, "threshold": 0.5}),
        (
            "batch_table [[1,8,4],[9,9,0]]",
            "batch_table [[1,8,4],[9,9,0]]",
            {"ranges": [[1, 8, 4], [9, 9, 0]]},
        ),
    ],
)
@pytest.mark.usefixtures("hydra_ready")
def test_an_entry_becomes_a_label_and_settings(text: str, label: str, settings: dict[str, object]) -> None:
    found, node = compose_policy(parse_entry(text))
    assert found == label
    assert {key: node[key] for key in settings} == settings


def test_labels_show_what_differs() -> None:
    defaults = {"_target_": "x", "threshold": 0.4, "depth": 8}
    assert policy_label("c", defaults, defaults) == "c"
    assert policy_label("c", {**defaults, "depth": 2}, defaults) == "c depth=2"
    assert policy_label("own", {"_target_": "x"}, {"_target_": "x"}) == "own"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["policy=fixd"],
            "policy=fixd: no such policy; did you mean 'fixed'? choices: ",
        ),
        (["policy=xyz"], "policy=xyz: no such policy; choices: "),
        (["policy.dept=3"], "policy has no setting 'dept': it has depth; did you mean 'depth'?"),
        (["sampling.temprature=1"], "did you mean 'temperature'?"),
        (["engin.seed=1"], "the configuration has no 'engin'; did you mean 'engine'?"),
        (["nothing"], "cannot read 'nothing': settings are KEY=VALUE"),
        (["policy.depth=[1"], "cannot read 'policy.depth=[1'"),
        (["drafter=draft_model"], "drafter.source is missing: pass drafter.source=VALUE"),
    ],
)
@pytest.mark.usefixtures("hydra_ready")
def test_composition_errors_are_one_line(overrides: list[str], expected: str) -> None:
    with pytest.raises((HydraException, ValueError)) as caught:
        to_plain(hydra.compose("run", overrides=overrides))
    message = one_line(caught.value) if isinstance(caught.value, HydraException) else str(caught.value)
    assert expected in message
    assert "\n" not in message


@pytest.mark.usefixtures("hydra_ready")
def test_compare_has_no_group_policy_and_says_what_it_takes() -> None:
    with pytest.raises(HydraException) as caught:
        hydra.compose("compare", overrides=["policy=fixed"])
    assert one_line(caught.value) == "no policy=NAME here: `compare` takes policies as compare.policies=[...]"


@pytest.mark.usefixtures("hydra_ready")
def test_an_entry_with_an_equals_sign_needs_quotes_and_the_error_says_so() -> None:
    with pytest.raises(HydraException) as caught:
        hydra.compose("compare", overrides=["compare.policies=[fixed depth=4]"])
    assert "['fixed depth=4']" in one_line(caught.value)


def test_a_policy_from_another_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "mine.yaml").write_text("_target_: my_module.Mine\nwidth: 3\n")
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        label, node = compose_policy(parse_entry("mine 5"), [f"hydra.searchpath=[file://{folder}]"])
    assert (label, node) == ("mine 5", {"_target_": "my_module.Mine", "width": 5})
