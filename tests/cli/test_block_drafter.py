"""`dspark run drafter=block`: from a folder to a run, and what is refused before a model loads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from dspark.drafters.formats import save_drafter_folder
from tests.cli.conftest import read_json
from tests.drafters.block_tools import PLAIN_HEADS, SPEC, random_backbone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dspark.drafters.spec import DraftSpec
    from tests.cli.conftest import Result

# for the target of debug=smoke: width 64, 259 tokens, 2 layers
FITTING = replace(SPEC, hidden_size=64, vocab_size=259, draft_vocab_size=40, num_target_layers=2)
SMOKE = ("debug=smoke", "drafter=block", "drafter.source=drafter", "policy.depth=4")
BY_CONFIDENCE = ("policy=confidence", "policy.depth=5", "policy.signal=confidence", "policy.stop=before")


def save(folder: Path, spec: DraftSpec = FITTING) -> None:
    save_drafter_folder(
        random_backbone(spec), folder, layout="speculators", dtype=torch.float32, with_tables=False
    )


def test_a_folder_drafts_in_a_run_and_names_its_row(dspark: Callable[..., Result], tmp_path: Path) -> None:
    save(tmp_path / "drafter")
    result = dspark("run", *SMOKE, "hydra.run.dir=out")
    assert result.code == 0, result.err
    (row,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert row["drafter"] == "drafter"
    assert row["drafted_tokens"] > 0
    result = dspark("run", *SMOKE[:-1], *BY_CONFIDENCE, "hydra.run.dir=by_confidence")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("message", "changes", "overrides"),
    [
        ("blocks have 5: set a depth of at most 5", {}, ["policy.depth=6"]),
        ("drafter.block_length must be >= 1", {}, ["drafter.block_length=0"]),
        ("its hidden size is 32, the target's 64", {"hidden_size": 32}, []),
        ("its vocabulary is 260, the target's 259", {"vocab_size": 260}, []),
        (
            "its last feature layer is 2, the target's 1",
            {"feature_layers": (0, 2), "num_target_layers": 3},
            [],
        ),
        (
            "needs the signal confidence, which the drafter",
            {"kind": "dflash", **PLAIN_HEADS},
            ["policy=confidence", "policy.signal=confidence"],
        ),
        ("model source 'nowhere' not found", {}, ["drafter.source=nowhere"]),
    ],
)
def test_mistakes_are_one_line_before_a_model_loads(
    dspark: Callable[..., Result], tmp_path: Path, message: str, changes: dict, overrides: list[str]
) -> None:
    save(tmp_path / "drafter", replace(FITTING, **changes))
    error = dspark("run", *SMOKE, *overrides, "hydra.run.dir=out").error
    assert message in error
    assert not (tmp_path / "out" / "steps.jsonl").exists()


def test_the_kind_in_the_configuration_is_the_files(dspark: Callable[..., Result], tmp_path: Path) -> None:
    save(tmp_path / "drafter")
    error = dspark("run", "debug=smoke", "drafter=eagle3", "drafter.source=drafter").error
    assert error.endswith("which is of kind dspark: use drafter=block")


def test_a_folder_that_is_no_drafter_is_refused(dspark: Callable[..., Result], tmp_path: Path) -> None:
    save(tmp_path / "drafter")
    (tmp_path / "drafter" / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    error = dspark("run", *SMOKE).error
    assert error.startswith("drafter.source: drafter/config.json describes no drafter that is implemented")
