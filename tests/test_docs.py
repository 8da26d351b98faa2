"""The documents agree with the package, and the policy they teach to write is a policy."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

import dspark
from dspark.config.typed import parameters_of
from dspark.drafters import NgramDrafter
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.engine.engine import Engine
from dspark.metrics import definitions
from dspark.policies import Fixed
from dspark.types import SamplingParams, Verdict
from tests.documents import DOCUMENTS, REPO, blocks, command_lines, placed_example, run_shortened
from tests.engine.tools import load, outputs, random_prompts, rows_of
from tests.policies.conftest import _context, _draft
from tests.policies.test_contract import BATCH_SIZES, Steps

DOCS = REPO / "docs"
STRUCTURE, METRICS, POLICY = (DOCS / name for name in ("structure.md", "metrics.md", "writing_a_policy.md"))


# ---- structure.md ------------------------------------------------------------------------------


def test_every_room_has_its_line() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", STRUCTURE.read_text(), flags=re.MULTILINE)
    rooms = {path.stem for path in (REPO / "dspark").iterdir() if not path.name.startswith("__")}
    assert set(listed) == rooms
    layers = re.findall(
        r'^  "([^"]+)",$', _between((REPO / "pyproject.toml").read_text(), "layers = [", "]"), re.M
    )
    order = [room.strip("()") for layer in layers for room in layer.split(" : ")]
    assert listed == [room for room in order if room in rooms], "not in the order of the layers"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(REPO).as_posix())
def test_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:\w+/)+\w*(?:\.\w+)?)`", path.read_text())
    of_the_reader_or_of_a_run = re.compile(r"my_|outputs/|wandb/|figures/|.*(heuristic|followers)")
    ours = [name for name in named if not of_the_reader_or_of_a_run.match(name)]
    places = (REPO, REPO / "dspark", REPO / "configs")
    assert [name for name in ours if not any((place / name).exists() for place in places)] == []


def _between(text: str, start: str, end: str) -> str:
    return text.split(start)[1].split(end)[0]


# ---- metrics.md --------------------------------------------------------------------------------


def test_every_metric_is_defined_in_the_document() -> None:
    functions = {
        name
        for name, function in inspect.getmembers(definitions, inspect.isfunction)
        if function.__module__ == definitions.__name__ and not name.startswith("_")
    }
    counting = {"step_totals"}  # sums, no metric
    named = set(re.findall(r"`(\w+)`", METRICS.read_text()))
    assert functions - counting - named == set()


def test_every_field_of_a_summary_is_in_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_shortened("dspark compare 'compare.policies=[fixed 0,fixed 2]' 'compare.batch_sizes=[2]'") == 0
    (path,) = tmp_path.rglob("summary.json")
    summary = json.loads(path.read_text())
    named = set(re.findall(r"`(\w+)(?:\[k-1\])?`", METRICS.read_text()))
    assert set(summary) | set(summary["tokens"]) | set(summary["rows"][0]) <= named


# ---- writing_a_policy.md -----------------------------------------------------------------------


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The documented module, imported from the documented place in an empty working folder."""
    files = ("my_policies/heuristic.py", "my_configs/policy/heuristic.yaml")
    return placed_example(POLICY, *files, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "command", [line for block in blocks(POLICY, "bash") for line in command_lines(block)]
)
def test_the_example_runs_by_its_yaml(example: ModuleType, command: str, tmp_path: Path) -> None:
    assert run_shortened(command) == 0
    (path,) = tmp_path.rglob("summary.json")
    policies = [row["policy"] for row in json.loads(path.read_text())["rows"]]
    asked = "heuristic depth=6" if " run " in command else "heuristic 2"
    assert asked in policies


def test_the_example_yaml_lists_every_field(example: ModuleType) -> None:
    settings = yaml.safe_load(blocks(POLICY, "yaml")[0])
    assert settings.pop("_target_") == "my_policies.heuristic.Heuristic"
    assert settings.keys() == parameters_of(example.Heuristic).keys()


def test_the_example_keeps_to_the_contract(example: ModuleType) -> None:
    assert len(list(Steps(example.Heuristic(depth=6), _context, _draft))) == len(BATCH_SIZES)


def test_the_example_goes_up_by_two_and_down_by_one_within_its_bounds(example: ModuleType) -> None:
    policy = example.Heuristic(start=2, depth=5)
    state, ctx = policy.init(3), _context(3)
    assert policy.plan(ctx, state).tolist() == [2, 2, 2]
    seen = []
    for accepted in ([2, 0, 0], [4, 0, 0], [4, 0, 1]):
        plan = policy.plan(ctx, state)
        lengths = plan * torch.tensor([1, 1, 0])  # the third row never has anything verified
        verdict = Verdict(verify_lengths=lengths, accepted=torch.tensor(accepted), next_token=plan)
        state = policy.observe(ctx, verdict, state)
        seen.append(policy.plan(ctx, state).tolist())
    assert seen == [[4, 1, 2], [5, 1, 2], [4, 1, 2]]


def test_the_example_leaves_text_alone_and_follows_each_request(
    example: ModuleType, tiny_llama: Path
) -> None:
    target, params = load(tiny_llama), SamplingParams(max_new_tokens=24, ignore_eos=True)
    prompts = random_prompts(5)  # two of them take slots that others have left
    plain, _ = outputs(Engine(target, None, Fixed(depth=0), max_batch_size=3), prompts, params)
    policy = example.Heuristic(start=2, depth=6)

    doubtful, records = outputs(Engine(target, NgramDrafter(), policy, max_batch_size=3), prompts, params)
    assert doubtful == plain
    assert {row.planned for row in rows_of(records)} >= {1, 2}

    certain, records = outputs(
        Engine(target, DraftModelDrafter(target), policy, max_batch_size=3), prompts, params
    )
    assert certain == plain
    for request_id in {row.request_id for row in rows_of(records)}:
        planned = [row.planned for row in rows_of(records) if row.request_id == request_id]
        assert planned == [2, 4, 6, 6, 6][: len(planned)]  # 23 tokens are 3 + 5 + 7 + 7 and one more
        assert len(planned) == 5


@pytest.mark.parametrize("settings", [{"start": 0}, {"start": 9, "depth": 8}, {"depth": -1}])
def test_the_example_refuses_what_it_cannot_do(example: ModuleType, settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        example.Heuristic(**settings)


# ---- CITATION.cff ------------------------------------------------------------------------------


def test_citation_names_this_version_and_no_person() -> None:
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text())
    assert citation["version"] == dspark.__version__
    assert citation["authors"] == [{"name": "The dspark developers"}]
    assert citation["license"] == "Apache-2.0"
