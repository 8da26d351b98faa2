"""What evaluation is measured on is found under any name, and nothing else is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dspark.training.held_out import (
    HELD_OUT_SETS,
    digest,
    is_held_out,
    listed,
    refuse_held_out_name,
    split_held_out,
)
from dspark.workload.prompts import PromptSpec, load_prompts
from dspark.workload.records import Message, Prompt


def _prompt(text: str) -> Prompt:
    return Prompt(id="x", domain="x", messages=(Message(role="user", content=text),))


def _texts(folder: Path, name: str) -> list[str]:
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["turns"][0] for line in lines if line.strip()]


def test_the_list_has_every_record_once() -> None:
    # 1319 records of GSM8K's test split less 1000; 164 of HumanEval, 80 of MT-Bench, 30 of AIME 2025
    assert Counter(name for name, _ in listed()) == dict(zip(HELD_OUT_SETS, (319, 164, 80, 30), strict=True))
    assert len({code for _, code in listed()}) == 319 + 164 + 80 + 30


def test_every_held_out_record_is_found(eval_data: Path) -> None:
    for name, first in (("gsm8k", 1000), ("humaneval", 0), ("mt-bench", 0), ("aime25", 0)):
        texts = _texts(eval_data, name)[first:]
        assert texts
        assert [text for text in texts if not is_held_out(_prompt(text))] == []


def test_what_may_be_trained_on_is_not(eval_data: Path) -> None:
    for name in ("math500", "mbpp", "livecodebench", "arena-hard-v2"):
        assert [text for text in _texts(eval_data, name) if is_held_out(_prompt(text))] == []
    assert [text for text in _texts(eval_data, "gsm8k")[:1000] if is_held_out(_prompt(text))] == []


def test_built_in_prompts_may_be_trained_on() -> None:
    prompts = load_prompts(PromptSpec())
    assert split_held_out(prompts) == (prompts, 0)


def test_a_prompt_is_found_without_its_wrapping_and_behind_another_message(eval_data: Path) -> None:
    question = _texts(eval_data, "gsm8k")[1100].partition("\nPlease reason step by step")[0]
    code = _texts(eval_data, "humaneval")[5].partition("```python\n")[2].partition("```")[0]
    for text in (question, question.replace(" ", "  "), code, f"Complete this:\n```python\n{code}```"):
        assert is_held_out(_prompt(text)), text
    system = Message(role="system", content="Be brief.")
    assert is_held_out(Prompt(id="x", domain="x", messages=(system, Message(role="user", content=question))))
    assert not is_held_out(_prompt(question[:-1]))


def test_a_digest_is_the_beginning_of_sha256() -> None:
    # echo -n "" | sha256sum
    assert digest("") == "e3b0c44298fc1c14"


@pytest.mark.parametrize(
    "path",
    ["humaneval.jsonl", "openai/openai_humaneval", "DIR/mt-bench.jsonl", "HuggingFaceH4/mt_bench_prompts",
     "math-ai/aime25", "yentinglin/aime_2025", "evalplus/HumanEvalPlus"],
)  # fmt: skip
def test_sets_held_out_as_a_whole_are_refused_by_name(path: str) -> None:
    with pytest.raises(ValueError, match="is held out for evaluation .*: take it off prompts.sources"):
        refuse_held_out_name(path)


@pytest.mark.parametrize(
    "path", ["gsm8k.jsonl", "aime24.jsonl", "google-research-datasets/mbpp", "bench/mt.jsonl"]
)
def test_other_names_pass(path: str) -> None:
    refuse_held_out_name(path)
