"""`dspark export`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from dspark.analysis.export.full_verify import full_verify_seconds
from dspark.analysis.schedule import Schedule
from dspark.config.paths import config_dir
from dspark.cost.profile_file import save_profile
from dspark.metrics.trace import write_json
from tests.cli.conftest import read_json, read_lines
from tests.cost.profiles import by_law

if TYPE_CHECKING:
    from tests.cli.conftest import Result

RANGES = ((1, 4, 4), (5, 8, 2), (9, 16, 2), (17, 64, 0))
RISING = ((1, 4, 2), (5, 8, 4))
SMALL = ("debug=smoke", "tracker=none", "workload.num_requests=3", "sampling.max_new_tokens=12")


@pytest.fixture
def files(tmp_path: Path) -> None:
    """In the working folder: schedules, temperatures and a profile."""
    write_json(tmp_path / "tuned.json", Schedule(depths=RANGES, command="dspark tune").to_json())
    write_json(tmp_path / "rising.json", Schedule(depths=RISING).to_json())
    for name in ("confidence", "top1"):
        fitted = {"schema": 1, "estimator": name, "temperatures": [0.5, 2.0], "provenance": {"workload": "w"}}
        write_json(tmp_path / f"{name}.json", fitted)
    save_profile(by_law(lambda rows, context, tokens: rows + context + tokens), tmp_path / "profile.json")
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("files")
class TestFiles:
    def test_vllm_gets_one_line_that_a_shell_can_pass_on(self, dspark: Callable[..., Result]) -> None:
        result = dspark("export", "to=vllm", "export.schedule=tuned.json", "export.method=ngram")
        assert result.code == 0
        assert result.out.count("\n") == 1
        assert json.loads(result.out) == {
            "method": "ngram",
            "num_speculative_tokens": 4,
            "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 16, 2], [17, 64, 0]],
        }
        assert "note: past batch size 64 vLLM goes on with depth 0\n" in result.err

    def test_nothing_but_the_file_is_left(self, dspark: Callable[..., Result]) -> None:
        before = set(Path().rglob("*"))
        arguments = ("to=tensorrt_llm", "export.schedule=tuned.json", "export.out=new/speculative.yaml")
        result = dspark("export", *arguments)
        assert (result.code, result.out) == (0, "")
        assert "written: new/speculative.yaml\n" in result.err
        assert set(Path().rglob("*")) - before == {Path("new"), Path("new/speculative.yaml")}
        written = yaml.safe_load(Path("new/speculative.yaml").read_text())["speculative_config"]
        assert written == {"max_draft_len": 4, "draft_len_schedule": {4: 4, 16: 2, 64: 0}}

    def test_sglang_has_a_file_for_each_source(self, dspark: Callable[..., Result]) -> None:
        adaptive = json.loads(dspark("export", "to=sglang", "export.schedule=tuned.json").out)
        assert adaptive == {key: {"candidate_steps": [d]} for key, d in (("1", 4), ("5", 2), ("17", 0))}
        sts = dspark("export", "to=sglang", "export.temperatures=confidence.json")
        assert json.loads(sts.out) == {"temperatures": [0.5, 2.0], "dataset": "w"}
        assert "--speculative-dspark-block-size 2" in sts.err
        sps = json.loads(dspark("export", "to=sglang", "export.profile=profile.json", "export.depth=3").out)
        profile = by_law(lambda rows, context, tokens: rows + context + tokens)
        tokens, seconds = full_verify_seconds(profile, depth=3)
        assert sps["sample_batch_tokens"] == tokens
        assert sps["sample_steps_per_sec"] == pytest.approx([1 / second for second in seconds])

    def test_the_context_of_a_profile_can_be_chosen(self, dspark: Callable[..., Result]) -> None:
        shallow, deep = (
            json.loads(
                dspark(
                    "export",
                    "to=sglang",
                    "export.profile=profile.json",
                    "export.depth=3",
                    f"export.context={n}",
                ).out
            )["sample_steps_per_sec"][0]
            for n in (10, 100)
        )
        assert (1 / shallow, 1 / deep) == pytest.approx((1 + 10 + 1, 1 + 100 + 1))

    def test_a_sweep_prints_each(self, dspark: Callable[..., Result]) -> None:
        result = dspark("export", "--multirun", "to=tensorrt_llm,sglang", "export.schedule=tuned.json")
        assert result.code == 0
        first, second = result.out.split("{4: 4, 16: 2, 64: 0}\n")
        assert first.startswith("speculative_config:\n")
        assert set(json.loads(second)) == {"1", "5", "17"}

    def test_no_model_library_is_loaded_for_a_schedule(self) -> None:
        arguments = ["export", "to=sglang", "export.schedule=nowhere.json"]
        code = (
            f"import sys; from dspark.cli.main import main; code = main({arguments}); "
            "assert code == 2 and not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class TestSpecBench:
    RUN = ("run", *SMALL, "policy=fixed", "policy.depth=3", "hydra.run.dir=ran")

    def test_a_run_alone_in_its_batch(self, dspark: Callable[..., Result]) -> None:
        # a prompt of several chunks has steps that name no request
        assert dspark(*self.RUN, "engine.max_batch_size=1", "engine.prefill_chunk=16").code == 0
        result = dspark("export", "to=spec_bench", "export.run=ran", "export.out=answers.jsonl")
        assert result.code == 0
        lines = read_lines(Path("answers.jsonl"))
        row = read_json(Path("ran/summary.json"))["rows"][0]
        choices = [line["choices"][0] for line in lines]
        assert [line["question_id"] for line in lines] == [1, 2, 3]
        assert {line["category"] for line in lines} == {"math", "code", "chat"}
        assert {line["model_id"] for line in lines} == {"llama-ngram-fixed-3"}
        assert len({line["answer_id"] for line in lines}) == 3
        # every token and second of the run is some question's
        assert sum(choice["new_tokens"][0] for choice in choices) == row["output_tokens"] == 36
        assert sum(choice["wall_time"][0] for choice in choices) == pytest.approx(row["wall_s"])
        for choice in choices:
            assert len(choice["accept_lengths"]) == choice["decoding_steps"][0]
            assert sum(choice["accept_lengths"]) == choice["new_tokens"][0] - 1  # the first is of the prefill
        texts = {item["text"].strip() for item in read_lines(Path("ran/outputs.jsonl"))}
        assert {choice["turns"][0] for choice in choices} == texts
        assert "Spec-Bench counts the categories chat, code in `overall` only" in result.err

    def test_questions_keep_their_numbers_and_the_model_its_name(
        self, dspark: Callable[..., Result], tmp_path: Path
    ) -> None:
        asked = [
            {"question_id": 241, "category": "qa", "turns": ["Who?"]},
            {"question_id": 81, "category": "writing", "turns": ["Write.", "More."]},
        ]
        (tmp_path / "question.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in asked))
        workload = ("workload.path=question.jsonl", "workload.num_requests=2", "engine.max_batch_size=1")
        assert dspark(*self.RUN, *workload).code == 0
        result = dspark("export", "to=spec_bench", "export.run=ran", "export.model_id=mine")
        lines = [json.loads(line) for line in result.out.splitlines()]
        shown = [(line["question_id"], line["category"], line["model_id"]) for line in lines]
        assert shown == [(81, "writing", "mine"), (241, "qa", "mine")]
        assert "1 of 2 questions have later turns" in result.err

    def test_shared_batches_are_refused(self, dspark: Callable[..., Result]) -> None:
        assert dspark(*self.RUN, "engine.max_batch_size=2").code == 0
        result = dspark("export", "to=spec_bench", "export.run=ran")
        assert "one request at a time, because seconds that requests share are nobody's" in result.error
        assert "run with engine.max_batch_size=1" in result.error

    def test_modelled_seconds_are_refused(self, dspark: Callable[..., Result]) -> None:
        modelled = ("engine.max_batch_size=1", "engine.clock=modelled", "cost=published")
        assert dspark(*self.RUN, *modelled).code == 0
        assert "are a cost model's" in dspark("export", "to=spec_bench", "export.run=ran").error

    def test_other_folders_are_refused(self, dspark: Callable[..., Result], tmp_path: Path) -> None:
        export = ("export", "to=spec_bench", "export.run=.")
        assert "export.run: cannot read summary.json: No such file" in dspark(*export).error
        write_json(tmp_path / "provenance.json", {"config": {}})
        write_json(tmp_path / "summary.json", {"complete": False, "rows": [{}]})
        assert "is not complete: resume it with resume=true" in dspark(*export).error
        write_json(tmp_path / "summary.json", {"complete": True, "rows": [{}, {}]})
        assert "an export is of one policy at one batch size" in dspark(*export).error
        write_json(tmp_path / "summary.json", {"complete": True, "rows": [{}]})
        assert "has no outputs.jsonl: give the folder of a `dspark run`" in dspark(*export).error


@pytest.mark.usefixtures("files")
class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "to is missing: pass to=VALUE"),
            (
                ["to=vlm"],
                "to must be one of vllm, sglang, tensorrt_llm, spec_bench, got 'vlm'; did you mean 'vllm'?",
            ),
            (["to=vllm"], "to=vllm needs export.schedule"),
            (["to=spec_bench"], "to=spec_bench needs export.run"),
            (["to=vllm", "export.schedule=tuned.json"], "to=vllm needs export.method"),
            (
                ["to=vllm", "export.schedule=tuned.json", "export.method=eagle4"],
                "one of dflash, draft_model, dspark, eagle, eagle3, mtp, ngram, got 'eagle4'",
            ),
            (
                ["to=vllm", "export.schedule=tuned.json", "export.method=eagle3"],
                "vLLM's method eagle3 needs a drafter, got none: set export.model=ID",
            ),
            (
                ["to=tensorrt_llm", "export.schedule=tuned.json", "export.method=ngram"],
                "export.method sets nothing for to=tensorrt_llm, which reads export.schedule: leave it out",
            ),
            (
                ["to=tensorrt_llm", "export.schedule=rising.json"],
                "needs the largest depth at the smallest batch",
            ),
            (["to=vllm", "export.schedule=x.json", "export.method=ngram"], "cannot read the schedule x.json"),
            (["to=sglang", "export.schedule=top1.json"], "the schedule top1.json: a schedule has the fields"),
            (["to=sglang"], "exactly one of export.schedule, export.temperatures, export.profile, got none"),
            (
                ["to=sglang", "export.schedule=tuned.json", "export.temperatures=confidence.json"],
                "got schedule and temperatures",
            ),
            (["to=sglang", "export.profile=profile.json"], "export.profile needs export.depth"),
            (
                ["to=sglang", "export.schedule=tuned.json", "export.depth=3"],
                "export.depth is of export.profile",
            ),
            (
                ["to=sglang", "export.profile=profile.json", "export.depth=0"],
                "export: depth must be >= 1, got 0",
            ),
            (
                ["to=sglang", "export.temperatures=x.json"],
                "export.temperatures: cannot read x.json: No such file",
            ),
            (["to=sglang", "export.temperatures=top1.json"], "got those of the estimator 'top1'"),
            (["to=sglang", "export.profile=x.json", "export.depth=3"], "export.profile: cannot read x.json"),
            (["to=sglang", "export.profile=tuned.json", "export.depth=3"], "the profile tuned.json"),
            (
                ["to=sglang", "export.schedule=tuned.json", "export.out=folder"],
                "export.out: cannot write folder: Is a directory",
            ),
            (["to=sglang", "export.shedule=tuned.json"], "did you mean 'schedule'?"),
            (["to=sglang", "policy=fixed"], "policy"),
        ],
    )
    def test_a_mistake_is_one_line(
        self, dspark: Callable[..., Result], arguments: list[str], message: str
    ) -> None:
        result = dspark("export", *arguments)
        assert message in result.error
        assert result.out == ""


def test_the_help_names_every_setting_and_its_example_schedule_is_one(dspark: Callable[..., Result]) -> None:
    text = dspark("export", "--help").out
    settings = yaml.safe_load((config_dir() / "export.yaml").read_text())["export"]
    assert all(f"export.{name}=" in text for name in settings)
    example = text[text.index('{"schema"') : text.index('"command": null}') + len('"command": null}')]
    assert Schedule.from_json(json.loads(example)).max_depth == 4
    assert '"$(dspark export to=vllm' in text
