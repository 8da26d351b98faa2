"""Which drafter and which prompts an experiment measures, and what it says where they are missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.drafters.cells import HELD_OUT
from experiments.drafting.drafter import (
    DFLASH,
    EAGLE3,
    NEEDS,
    dspark_drafter,
    rivals,
    size,
)
from experiments.drafting.prompts import BUILTIN, DATA, DATA_NEED, DOMAINS, mixture, workload
from experiments.drafting.stand_in import make_stand_in
from experiments.reproduce import Context

NAME = "e04_conditional_acceptance"
Make = Callable[..., Context]


@pytest.fixture(scope="module")
def dflash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny DFlash drafter."""
    return make_stand_in("dflash", tmp_path_factory.mktemp("stand_ins"))


def _missing_drafter(context: Context) -> str | None:
    """The first reason, as the runner looks for it."""
    return next((why for need in NEEDS if (why := need.missing(context)) is not None), None)


def test_a_drafter_that_is_nowhere_is_a_need_that_says_what_to_do(context: Make) -> None:
    why = _missing_drafter(context(NAME, drafter="nowhere"))
    assert why is not None
    assert why.startswith("the drafter: model source 'nowhere' not found")
    assert why.endswith("give drafter=FOLDER")


def test_a_folder_without_a_drafter_is_one_too(context: Make, tiny_llama: Path) -> None:
    why = _missing_drafter(context(NAME, drafter=str(tiny_llama)))
    assert why is not None
    assert "describes no drafter that is implemented" in why


def test_a_drafter_of_another_kind_is_refused(context: Make, dflash: Path) -> None:
    why = _missing_drafter(context(NAME, drafter=str(dflash)))
    assert why is not None
    assert "got kind dflash, no confidence head and blocks of 7" in why


def test_the_drafter_in_the_repository_will_do(context: Make) -> None:
    start = Path(__file__).resolve().parents[2] / "experiments" / "drafters" / "start"
    made = context(NAME, drafter=str(start))
    assert _missing_drafter(made) is None
    assert dspark_drafter(made).overrides() == ["drafter=block", f"drafter.source={start}"]


def test_by_default_it_is_the_one_of_the_package(context: Make) -> None:
    assert dspark_drafter(context(NAME)).overrides() == ["drafter=block", "drafter.source=smollm2_dspark"]


def test_a_shortened_run_needs_nothing(context: Make) -> None:
    short = context(NAME, quick=True, drafter="nowhere", data="nowhere")
    assert [need.missing(short) for need in (*NEEDS, DATA_NEED)] == [None] * 3
    assert "debug=smoke" in size(short, 1000)
    assert size(context(NAME), 1000) == ["tracker=none", "sampling.max_new_tokens=1000"]


def test_rivals_are_those_that_are_set(context: Make) -> None:
    assert rivals(context(NAME), DFLASH, EAGLE3) == []
    (found,) = rivals(context(NAME, eagle3="somewhere"), DFLASH, EAGLE3)
    assert (found.name, found.overrides()) == ("EAGLE-3", ["drafter=eagle3", "drafter.source=somewhere"])


def test_a_shortened_run_has_all_rivals(context: Make, dflash: Path) -> None:
    found = rivals(context(NAME, quick=True), DFLASH, EAGLE3)
    assert [rival.name for rival in found] == ["DFlash", "EAGLE-3"]
    assert all(rival.source is not None and Path(rival.source).is_dir() for rival in found)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a file a domain; each record says where it is from."""
    folder = tmp_path / "data"
    folder.mkdir()
    for held_out in HELD_OUT[:3]:
        lines = [
            json.dumps({"turns": [f"{held_out.name} {i + 1}", "more"]}) for i in range(held_out.skip + 3)
        ]
        (folder / held_out.file).write_text("\n".join(lines) + "\n")
    return folder


def test_prompts_of_a_domain_are_of_its_file(context: Make, data: Path) -> None:
    made = context(NAME, data=str(data))
    assert DATA_NEED.missing(made) is None
    assert workload(made, DOMAINS[0], 5) == [
        f"workload.path={data / 'gsm8k.jsonl'}",
        "workload.skip=1000",
        "workload.num_requests=5",
    ]


@pytest.mark.parametrize("quick", [False, True])
def test_built_in_prompts_are_of_the_domain(context: Make, *, quick: bool) -> None:
    made = context(NAME, quick=quick, data=BUILTIN)
    asked = [f"workload.num_requests={2 if quick else 5}"]
    assert workload(made, DOMAINS[1], 5) == ["workload.domains=[code]", *asked]


def test_the_default_folder_may_be_missing_and_no_other(
    context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = DATA_NEED.missing(context(NAME, data=str(tmp_path / "nowhere")))
    assert why is not None
    assert why.startswith(f"{tmp_path / 'nowhere'} has no gsm8k.jsonl, humaneval.jsonl, mt-bench.jsonl")
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    made = context(NAME, data=str(DATA.default))
    assert DATA_NEED.missing(made) is None
    assert workload(made, DOMAINS[2], 5)[0] == "workload.domains=[chat]"


def test_a_mixture_takes_from_every_file_in_turn(context: Make, data: Path, tmp_path: Path) -> None:
    made = context(NAME, data=str(data))
    assert mixture(made, 5) == [f"workload.path={tmp_path / 'prompts.jsonl'}", "workload.num_requests=5"]
    records = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    prompts = ["gsm8k 1001", "humaneval 1", "mt-bench 1", "gsm8k 1002", "humaneval 2", "mt-bench 2"]
    assert [record["prompt"] for record in records] == prompts
    assert [record["id"] for record in records] == [prompt.replace(" ", "-") for prompt in prompts]
