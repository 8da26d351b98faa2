"""Sources give prompts under keys of their own, wrapped, cut, and without what is held out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.training.sources import PromptSource, check_sources, mixed, training_prompts


def _file(folder: Path, name: str, texts: list[str]) -> None:
    (folder / name).write_text("".join(f"{json.dumps({'turns': [text]})}\n" for text in texts))


def _contents(found: dict) -> dict[str, str]:
    return {key: prompt.messages[-1].content for key, prompt in found.items()}


def test_files_of_a_folder_stand_for_hub_ids(tmp_path: Path) -> None:
    _file(tmp_path, "a.jsonl", ["one", "two", "three and more", "four"])
    sources = [
        PromptSource(name="builtin", path=None),
        PromptSource(name="a", path="org/a", file="a.jsonl", num_records=3, max_prompt_chars=5),
        PromptSource(name="b", path="org/a", file="a.jsonl", prefix="Do: ", suffix=" Now."),
    ]
    check_sources(sources, tmp_path)
    found = _contents(training_prompts(sources, tmp_path))
    assert {key: found[key] for key in found if key[0] == "a"} == {"a/a-1": "one", "a/a-2": "two"}
    assert found["b/a-4"] == "Do: four Now."
    assert sum(key.startswith("builtin/") for key in found) == 72


def test_a_prefix_or_suffix_that_is_there_is_not_added(tmp_path: Path) -> None:
    _file(tmp_path, "a.jsonl", ["Do: it Now.\n", "Do: it"])
    source = PromptSource(name="a", path="org/a", file="a.jsonl", prefix="Do: ", suffix="\nNow.")
    found = _contents(training_prompts([source], tmp_path))
    assert list(found.values()) == ["Do: it Now.\n", "Do: it\nNow."]


def test_held_out_records_are_left_out_and_told(
    tmp_path: Path, eval_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = PromptSource(name="gsm8k", path="openai/gsm8k", file="gsm8k.jsonl")
    with caplog.at_level("INFO"):
        found = training_prompts([source], eval_data)
    assert len(found) == 1000
    assert "gsm8k: 319 prompts are held out for evaluation" in caplog.text
    lines = (eval_data / "humaneval.jsonl").read_text().split("\n")[:3]
    (tmp_path / "code.jsonl").write_text("\n".join(lines))
    renamed = PromptSource(name="code", path=str(tmp_path / "code.jsonl"))
    with pytest.raises(ValueError, match="code: none of its 3 prompts can be trained on: 3 are held out"):
        training_prompts([renamed], None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "a/b", "path": None}, "name must be a word without / and #, got 'a/b'"),
        ({"name": "a", "path": None, "num_records": 0}, "num_records must be >= 1, or null for all, got 0"),
        ({"name": "a", "path": "org/humaneval"}, "is held out for evaluation"),
        ({"name": "a", "path": "org/a", "file": "mt-bench.jsonl"}, "is held out for evaluation"),
        ({"name": "a", "path": ""}, "path must name a file or a data set"),
    ],
)
def test_a_source_that_cannot_be_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromptSource(**settings)


def test_sources_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    source = PromptSource(name="a", path="org/a", file="a.jsonl")
    with pytest.raises(ValueError, match="name at least one source, each once, got \\[\\]"):
        check_sources([], None)
    with pytest.raises(ValueError, match="each once, got \\['a', 'a'\\]"):
        check_sources([source, source], tmp_path)
    with pytest.raises(ValueError, match="does not exist: give a folder, or null for the hub"):
        check_sources([source], tmp_path / "nowhere")
    with pytest.raises(ValueError, match="prompts.sources: a: no such prompt file"):
        check_sources([source], tmp_path)


def test_an_order_by_hash_mixes_and_does_not_depend_on_the_input() -> None:
    keys = [f"{name}/{i}" for name in "ab" for i in range(50)]
    order = mixed(keys, seed=1)
    assert order == mixed(keys[::-1], seed=1)
    assert order != mixed(keys, seed=2)
    assert sorted(order) == sorted(keys)
    # 30 of 100 without replacement, half of each: fewer than 8 of one has a chance below 0.1 %
    assert min(sum(key.startswith(name) for key in order[:30]) for name in "ab") >= 8
