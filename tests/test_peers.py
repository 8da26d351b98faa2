"""The comparison with other engines: its arithmetic, its command, and what it writes. No vLLM is needed."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
from pathlib import Path

import pytest

from experiments.bench.measure import Measurement
from experiments.peers import __main__ as command
from experiments.peers import setup, vllm_sides
from experiments.peers.chart import side_colours
from experiments.peers.comparison import compare
from experiments.peers.options import parse
from experiments.peers.sides import Family
from experiments.peers.worker import Worker
from tests.documents import REPO, blocks, command_lines
from tests.fake_worker import fake_worker

README = REPO / "experiments" / "peers" / "README.md"

# ---- the arithmetic ----------------------------------------------------------------------------


def _measurement(side: str, batch_size: int, long_s: float, short_s: float) -> Measurement:
    return Measurement(
        side=side,
        batch_size=batch_size,
        num_new=11,
        long_s=[long_s + 9, long_s, long_s],  # the slow repeat does not move the median
        short_s=[short_s + 4, short_s, short_s],
        same_rows=batch_size,
    )


FAMILIES = {
    "ours plain": Family.DSPARK,
    "ours drafting": Family.DSPARK,
    "theirs plain": Family.VLLM_COMPILED,
    "theirs drafting": Family.VLLM_COMPILED,
    "theirs eager": Family.VLLM_EAGER,
    "generate": Family.TRANSFORMERS,
}
MEASUREMENTS = [
    # batch 4, 11 tokens: decode is 4 * 10 / (long - short), end to end 4 * 11 / long
    _measurement("ours plain", 4, 3.0, 1.0),  # 20 and 14.67
    _measurement("ours drafting", 4, 2.75, 0.25),  # 16 and 16
    _measurement("theirs plain", 4, 4.0, 1.5),  # 16 and 11
    _measurement("theirs drafting", 4, 2.5, 0.0),  # 16 - below it - and 17.6
    _measurement("theirs eager", 4, 1.0, 0.5),  # 80 and 44, and of no concern
    _measurement("generate", 4, 5.5, 0.5),  # 8 and 8
]


def test_ratios_are_of_the_best_of_each_family() -> None:
    rows = {(row.family, row.measure): row for row in compare(MEASUREMENTS, FAMILIES)}
    assert len(rows) == 4
    decode = rows["vLLM compiled", "decode"]
    assert (decode.ours, decode.theirs) == ("ours plain", "theirs plain")
    assert math.isclose(decode.value, 20 / 16)
    assert (decode.bar, decode.passed, decode.ambition, decode.reached_ambition) == (1.1, True, 1.3, False)
    whole = rows["vLLM compiled", "end to end"]
    assert (whole.ours, whole.theirs) == ("ours drafting", "theirs drafting")
    assert math.isclose(whole.value, 16 / 17.6)
    assert (whole.bar, whole.passed, whole.reached_ambition) == (1.0, False, None)
    assert math.isclose(rows["transformers", "decode"].value, 20 / 8)
    assert math.isclose(rows["transformers", "end to end"].value, 16 / 8)
    assert (rows["transformers", "decode"].bar, rows["transformers", "end to end"].bar) == (1.5, 1.2)


def test_a_family_without_a_side_at_a_batch_size_has_no_row_there() -> None:
    more = [*MEASUREMENTS, _measurement("ours plain", 1, 3.0, 1.0), _measurement("generate", 1, 3.0, 1.0)]
    rows = compare(more, FAMILIES)
    assert [(row.batch_size, row.family) for row in rows] == [
        *[(1, "transformers")] * 2,
        *[(4, "vLLM compiled")] * 2,
        *[(4, "transformers")] * 2,
    ]
    assert [row.value for row in rows[:2]] == [1.0, 1.0]
    assert not any(row.passed for row in rows[:2])


def test_every_side_has_its_colour() -> None:
    colours = side_colours(FAMILIES)
    assert list(colours) == list(FAMILIES)
    assert len(set(colours.values())) == len(FAMILIES)


# ---- the command -------------------------------------------------------------------------------

SMALL = ["--batch-sizes", "1", "2", "--new-tokens", "6", "--repeats", "1", "--threads", "1"]


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's environment is there, and its workers are fakes."""

    def start(mode: str, folder: Path, **settings: object) -> tuple[Worker, dict]:
        worker = fake_worker(tmp_path, name=mode)
        return worker, worker.ready()

    monkeypatch.setattr(setup, "is_installed", lambda: True)
    monkeypatch.setattr(vllm_sides, "start", start)


def _run(*arguments: str, out: Path) -> tuple[int, dict]:
    code = command.main([*arguments, *SMALL, "--out", str(out)])
    assert (out / "peers.png").read_bytes().startswith(b"\x89PNG")
    return code, json.loads((out / "peers.json").read_text())


@pytest.mark.usefixtures("fake_vllm")
def test_all_sides_are_measured_and_written(
    tiny_llama: Path, tiny_llama_drafter: Path, tmp_path: Path
) -> None:
    code, content = _run("--target", str(tiny_llama), "--assistant", str(tiny_llama_drafter), out=tmp_path)
    assert content.keys() == {
        "schema",
        "machine",
        "settings",
        "workers",
        "rows",
        "ratios",
        "left_out",
    }
    everywhere = {
        "dspark depth 0",
        "dspark n-gram 4",
        "dspark n-gram batch_table",
        "transformers generate",
        "vLLM eager",
        "vLLM compiled",
        "vLLM compiled, n-gram 4",
    }
    single = {"transformers prompt lookup 4", "transformers assisted"}
    sides = {b: {row["side"] for row in content["rows"] if row["batch_size"] == b} for b in (1, 2)}
    assert sides == {1: everywhere | single, 2: everywhere}
    fields = {"decode_tokens_per_s", "tokens_per_s", "same_rows", "family", "long_s", "short_s", "num_new"}
    for row in content["rows"]:
        assert fields < row.keys()
        assert row["num_new"] == 6
        # every kind of greedy decoding here and in transformers gives the tokens of plain decoding
        if not row["side"].startswith("vLLM"):
            assert row["same_rows"] == row["batch_size"], row["side"]
    compiled = [row for row in content["rows"] if row["side"] == "vLLM compiled"]
    # six tokens in 8/16 s and one in 3/16 s, at batch sizes 1 and 2
    assert [row["tokens_per_s"] for row in compiled] == [6 / (8 / 16), 12 / (8 / 16)]
    assert [row["decode_tokens_per_s"] for row in compiled] == [5 / (5 / 16), 10 / (5 / 16)]
    ratios = {(row["family"], row["measure"], row["batch_size"]): row for row in content["ratios"]}
    kinds = [
        (family, measure)
        for family in ("vLLM compiled", "transformers")
        for measure in ("decode", "end to end")
    ]
    assert ratios.keys() == {(*kind, batch) for kind in kinds for batch in (1, 2)}
    for row in content["ratios"]:
        assert row["passed"] is (row["value"] >= row["bar"])
    assert content["workers"]["vLLM compiled"] == {"vllm": "fake", "threads": 2, "start_s": 0.5}
    assert content["left_out"] == []
    assert content["machine"]["dtype"] == "float32"
    assert code == (0 if all(row["passed"] for row in content["ratios"]) else 1)


def test_without_vllm_its_sides_are_left_out_in_plain_words(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "is_installed", lambda: False)
    arguments = ["--target", str(tiny_llama), "--peers", "vllm-eager", "vllm-compiled"]
    code, content = _run(*arguments, "--policy", "confidence", out=tmp_path)
    assert code == 0
    assert [side["side"] for side in content["left_out"]] == ["vLLM eager", "vLLM compiled"]
    assert {side["command"] for side in content["left_out"]} == {"make peers-setup"}
    assert content["ratios"] == []
    assert {row["family"] for row in content["rows"]} == {"dspark"}
    line = "left out: vLLM eager, vLLM compiled: vLLM's own environment is not set up; to have them: "
    line += setup.COMMAND
    assert " ".join(capsys.readouterr().out.split()).count(line) == 2


@pytest.mark.usefixtures("fake_vllm")
def test_a_worker_that_dies_ends_the_run_with_its_last_words(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [*SMALL, "--new-tokens", "13"]  # which the fake dies of
    arguments = ["--target", str(tiny_llama), "--peers", "vllm-eager", "--out", str(tmp_path)]
    assert command.main([*arguments, *small]) == 3
    error = capsys.readouterr().err
    assert "\nerror: vLLM eager ended with code 7; the end of " in error
    assert error.endswith("no luck today\n")
    assert not (tmp_path / "peers.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "nowhere at all"], "model source 'nowhere at all' not found"),
        (["--prompts", "missing.jsonl"], "missing.jsonl"),
        (["--batch-sizes", "0"], "--batch-sizes must be >= 1, got 0"),
        (["--batch-sizes", "2", "2"], "--batch-sizes must name each once"),
        (["--new-tokens", "1"], "--new-tokens must be >= 2, got 1"),
        (["--repeats", "0"], "--repeats must be >= 1, got 0"),
        (["--threads", "0"], "--threads must be >= 1, got 0"),
        (["--assistant", "TARGET", "--peers", "vllm-eager"], "--assistant has no effect"),
        (["--assistant", "TARGET", "--batch-sizes", "4"], "--assistant has no effect"),
        (["--new-tokens", "500"], "--new-tokens must leave every row within the target's context of 512"),
        (["--assistant", "OTHER"], "must share the target's vocabulary of 259 tokens, got one of 32"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str],
    message: str,
    tiny_llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dspark.models.synthetic import make_synthetic_target

    monkeypatch.chdir(tmp_path)
    words = {"TARGET": str(tiny_llama)}
    if "OTHER" in arguments:
        words["OTHER"] = str(make_synthetic_target(tmp_path / "other", vocab_size=32))
    given = [words.get(word, word) for word in arguments]
    assert command.main(["--target", str(tiny_llama), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "outputs").exists()


# ---- the page ----------------------------------------------------------------------------------

DOCUMENTED = [line for block in blocks(README, "bash") for line in command_lines(block)]


@pytest.mark.parametrize("line", DOCUMENTED)
def test_documented_command_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    if words[0] == "make":
        assert line == setup.COMMAND
        done = subprocess.run(
            ["make", "-n", "--no-print-directory", words[1]],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == ".venv/bin/python -m experiments.peers.setup"
        return
    assert words[:3] == [".venv/bin/python", "-m", "experiments.peers"]
    monkeypatch.setattr("experiments.peers.options.check_source", lambda source: None)  # where it is missing
    options = parse(words[3:])
    assert options.target == "smollm2"
    assert set(options.vllm_modes) in (set(), set(vllm_sides.MODES))
