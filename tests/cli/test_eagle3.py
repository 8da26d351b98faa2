"""`drafter=eagle3`: a trained head by folder, checked against policy and target before either loads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from dspark.cli import session
from dspark.drafters.formats import save_drafter_folder
from tests.cli.conftest import read_json, read_lines
from tests.drafters.eagle3_tools import random_head, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "hydra.run.dir=out", "sampling.temperature=0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random head for the smoke target, which has two layers 64 wide; it drafts every seventh token."""
    spec = tiny_spec(hidden_size=64, vocab_size=259, draft_vocab_size=37, feature_layers=(0, 1))
    model = random_head(spec, d2t=6 * torch.arange(37))
    return save_drafter_folder(model, tmp_path / "head", layout="speculators", with_tables=False)


def test_a_run_drafts_and_keeps_the_text_of_plain_decoding(
    dspark: Callable[..., Result], tmp_path: Path, folder: Path
) -> None:
    outputs = []
    for drafter in (["drafter=eagle3", f"drafter.source={folder}", "policy.depth=3"], ["policy.depth=0"]):
        result = dspark("run", *SMOKE, "engine.numerics=invariant", *drafter)
        assert result.code == 0, result.err
        outputs.append([line["token_ids"] for line in read_lines(tmp_path / "out" / "outputs.jsonl")])
        drafted = read_json(tmp_path / "out" / "summary.json")["rows"][0]["drafted_tokens"]
        assert (drafted > 0) == ("policy.depth=3" in drafter)
    assert outputs[0] == outputs[1]


def test_layers_that_count_from_the_target_are_found(dspark: Callable[..., Result], folder: Path) -> None:
    _change(folder, eagle_aux_hidden_state_layer_ids=None)
    # of 2 layers: 2, 1 and -1 in speculators' numbers, which are no three layers
    assert "feature_layers must be different ones of -1" in _refused(dspark, folder)
    result = dspark("run", *SMOKE, "target.num_layers=6", "drafter=eagle3", f"drafter.source={folder}")
    # of 6 layers: 2, 3 and 3
    assert result.code == 2
    assert "got [1, 2, 2]" in result.error


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, ["policy=confidence", "policy.signal=confidence"], "needs the signal confidence"),
        ({}, ["target.hidden_size=96"], "does not fit the target: its hidden size is 64, the target's 96"),
        ({"speculators_model_type": "mtp"}, [], "speculators_model_type is 'mtp'"),
        ({"target_hidden_size": 128}, [], "target_hidden_size must be the head's own hidden_size, 64"),
        ({}, ["drafter=block"], "use drafter=eagle3"),
        ({}, ["+drafter.block_length=3"], "block_length"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_model_loads(
    dspark: Callable[..., Result],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict,
    arguments: list[str],
    message: str,
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded before the command was refused")

    monkeypatch.setattr(session, "load_target", refuse)
    _change(folder, **changes)
    assert message in _refused(dspark, folder, *arguments)


def _change(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _refused(dspark: Callable[..., Result], folder: Path, *arguments: str) -> str:
    return dspark("run", *SMOKE, "drafter=eagle3", *arguments, f"drafter.source={folder}").error
