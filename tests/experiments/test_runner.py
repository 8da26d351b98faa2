"""Results are on disk as they come; failures and interrupts cost nothing that had ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from experiments.reproduce import Context, Figure, Need, Outcome, Setting
from experiments.reproduce import key as keys
from experiments.reproduce.result import read_result
from tests.experiments.stand_ins import (
    EQUAL,
    LARGER,
    Counted,
    experiment,
    fails,
    is_interrupted,
    run,
    works,
)


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    (result,) = run(tmp_path, experiment("e90_one", works))
    assert read_result(tmp_path / "e90_one") == result
    assert result.verdict == "reproduced"
    assert result.summary == "1 reproduced, 1 shape only"
    told = json.loads((tmp_path / "e90_one" / "result.json").read_text())
    assert [claim["status"] for claim in told["claims"]] == ["reproduced", "shape only"]
    assert told["origin"]["machine"]["num_cpus"] >= 1
    assert told["origin"]["threads"] >= 1


def test_what_is_there_is_not_run_again_unless_asked(tmp_path: Path) -> None:
    counted = Counted(works)
    one = experiment("e90_one", counted, settings=(Setting(name="size", what="x", default="1"),))
    first = run(tmp_path, one)
    assert run(tmp_path, one) == first
    assert run(tmp_path, one, settings={"size": "1"}) == first, "the default, spelled out"
    assert counted.times == 1
    run(tmp_path, one, again=True)
    assert counted.times == 2
    run(tmp_path, one, settings={"size": "2"})
    assert counted.times == 3
    run(tmp_path, one, settings={"size": "2"}, quick=True)
    assert counted.times == 4
    assert [context.settings for context in counted.seen[1:]] == [{"size": "1"}, {"size": "2"}, {"size": "2"}]
    assert counted.seen[-1].quick


def test_one_that_fails_is_a_result_and_the_rest_goes_on(tmp_path: Path) -> None:
    failing, after = Counted(fails), Counted(works)
    pair = experiment("e90_one", failing), experiment("e91_two", after)
    failed, good = run(tmp_path, *pair)
    assert (failed.verdict, failed.summary) == ("failed", "RuntimeError: a wheel <came> off")
    assert failed.error is not None
    assert "in fails" in failed.error, "a traceback"
    assert [claim.what for claim in failed.claims] == [EQUAL.what, LARGER.what]
    assert good.verdict == "reproduced"
    run(tmp_path, *pair)
    assert (failing.times, after.times) == (2, 1), "only the failed one runs again"


def test_a_promised_figure_that_was_not_drawn_is_a_failure(tmp_path: Path) -> None:
    def forgets(context: Context) -> Outcome:
        return Outcome(claims=(EQUAL.measured(2),), figures=(Figure(file="a.png", caption="", alt="a"),))

    (result,) = run(tmp_path, experiment("e90_one", forgets))
    assert result.summary.startswith("FileNotFoundError: the figure a.png was promised")
    assert result.figures == ()


def test_what_cannot_run_here_says_why_and_is_tried_when_it_can(tmp_path: Path) -> None:
    counted, wanted = Counted(works), tmp_path / "model"

    def missing(_: Context) -> str | None:
        return None if wanted.exists() else "no model: get one"

    one = experiment("e90_one", counted, Need(what="a model", missing=missing))
    (result,) = run(tmp_path / "out", one)
    assert (result.verdict, result.summary, counted.times) == ("not run here", "no model: get one", 0)
    assert [(claim.what, claim.note) for claim in result.claims] == [
        (EQUAL.what, "no model: get one"),
        (LARGER.what, "no model: get one"),
    ]
    wanted.touch()
    (result,) = run(tmp_path / "out", one)
    assert (result.verdict, counted.times) == ("reproduced", 1)


def test_an_interrupt_loses_nothing_that_had_ended(tmp_path: Path) -> None:
    first = Counted(works)
    one = experiment("e90_one", first)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, one, experiment("e91_two", is_interrupted))
    assert read_result(tmp_path / "e91_two") is None

    def goes_on(context: Context) -> Outcome:
        assert (context.folder / "half.txt").read_text() == "half"
        return works(context)

    results = run(tmp_path, one, experiment("e91_two", goes_on))
    assert [result.verdict for result in results] == ["reproduced"] * 2
    assert first.times == 1


@pytest.mark.parametrize("change", [{"quick": True}, {"again": True}])
def test_what_was_left_by_another_run_is_removed(tmp_path: Path, change: dict[str, bool]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, experiment("e90_one", is_interrupted))

    def starts_anew(context: Context) -> Outcome:
        assert not (context.folder / "half.txt").exists()
        return works(context)

    (result,) = run(tmp_path, experiment("e90_one", starts_anew), **change)
    assert result.error is None


def test_a_folder_of_somebody_else_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "e91_two").mkdir()
    (tmp_path / "e91_two" / "thesis.tex").touch()
    counted = Counted(works)
    with pytest.raises(ValueError, match="holds something else than an experiment"):
        run(tmp_path, experiment("e90_one", counted), experiment("e91_two", counted))
    assert counted.times == 0
    assert (tmp_path / "e91_two" / "thesis.tex").exists()


def test_a_key_follows_the_sources_and_not_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "REPO", tmp_path)
    own, other = tmp_path / "experiments" / "e90_one", tmp_path / "experiments" / "e91_two"
    for folder in (tmp_path / "dspark", tmp_path / "configs", own, other):
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("1")
    one = experiment("e90_one", works)
    context = Context(folder=tmp_path, console=Console(quiet=True))
    seen = [keys.result_key(one, context)]
    for path in (other / "a.py", own / "README.md", own / "picture.png"):
        path.write_text("2")
        assert keys.result_key(one, context) == seen[-1], path
    shared = tmp_path / "experiments" / "drafting"
    shared.mkdir()
    for path in (
        tmp_path / "dspark" / "a.py",
        tmp_path / "configs" / "b.yaml",
        own / "a.py",
        shared / "a.py",
    ):
        path.write_text("2")
        seen.append(keys.result_key(one, context))
    assert len(set(seen)) == len(seen)


def test_a_key_follows_what_lies_where_a_setting_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "REPO", tmp_path / "repository")
    weights = tmp_path / "drafter" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"one")
    one = experiment("e90_one", works)
    settings = {"drafter": str(weights.parent), "temperature": "1", "other": str(tmp_path / "nowhere")}
    context = Context(folder=tmp_path, console=Console(quiet=True), settings=settings)
    first = keys.result_key(one, context)
    assert keys.result_key(one, context) == first
    weights.write_bytes(b"two")
    trained_on = keys.result_key(one, context)
    assert trained_on != first
    monkeypatch.setattr(keys, "_READ_WHOLE", 2)  # a large file counts by its size and time
    by_time = keys.result_key(one, context)
    os.utime(weights, ns=(1, 1))
    assert len({first, trained_on, by_time, keys.result_key(one, context)}) == 4
