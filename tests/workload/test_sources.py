"""Built-in prompts, JSONL files and data sets are read completely, and bad files say where."""

import json
from itertools import islice
from pathlib import Path

import pytest

from dspark.workload.records import prompt_of
from dspark.workload.sources import DOMAINS, builtin_records, dataset_records, jsonl_path, jsonl_records

EVAL_DATASETS = Path(__file__).parents[2] / ".." / "shared" / "data" / "eval_datasets"


def _write(folder: Path, data: str | bytes, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_built_in_domain_is_well_formed(domain):
    prompts = [prompt_of(record) for record in builtin_records((domain,))]
    assert len(prompts) >= 24
    assert {prompt.domain for prompt in prompts} == {domain}
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.messages for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize("domains", [DOMAINS, ("chat", "math")])
def test_every_stretch_of_built_in_prompts_holds_all_domains(domains):
    names = [record.fields["domain"] for record in builtin_records(domains)]
    width = len(domains)
    assert all(set(names[i : i + width]) == set(domains) for i in range(0, len(names) - width + 1))


def test_lines_end_at_newlines_only(tmp_path):
    text = "a\u2028b\u2029c\x85d\x0be"
    line = json.dumps({"prompt": text}, ensure_ascii=False)
    assert len(line.splitlines()) > 1
    path = _write(tmp_path, f"\ufeff{line}\r\n\n{line}")
    records = jsonl_records(path)
    assert [record.fields["prompt"] for record in records] == [text, text]
    assert [record.where for record in records] == [f"{path}:1", f"{path}:3"]
    assert [record.default_id for record in records] == ["prompts-1", "prompts-3"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", r"prompts.jsonl: holds no prompts"),
        ("\n \n", r"prompts.jsonl: holds no prompts"),
        ('{"prompt": "a"}\n{"prompt": "b"\n', r"prompts.jsonl:2: malformed JSON: .* at column"),
        ('{"prompt": "a"}\n[1]\n', r"prompts.jsonl:2: one JSON object a line is expected, got list"),
        (b'{"prompt": "\xff"}', r"prompts.jsonl:1: not UTF-8 at byte 12"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, data, message):
    with pytest.raises(ValueError, match=message) as error:
        jsonl_records(_write(tmp_path, data))
    assert "\n" not in str(error.value)


def test_paths_are_told_from_hub_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = _write(tmp_path, "{}", "prompts")
    (tmp_path / "folder").mkdir()
    assert jsonl_path("prompts") == Path("prompts")
    assert jsonl_path(str(file)) == file
    assert jsonl_path("folder") is None
    assert jsonl_path("owner/name-1.0") is None


@pytest.mark.parametrize(
    "path",
    ["missing", "missing.jsonl", "owner/missing.jsonl", "folder/missing", "/no/such/file", "./a/b", "a/b/c"],
)
def test_a_missing_file_is_never_looked_up_on_the_hub(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=f"^no such prompt file: '{path}': give"):
        jsonl_path(path)


@pytest.fixture
def dataset_folder(tmp_path, monkeypatch):
    """A folder that the ``datasets`` library loads, with its cache beside it."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "owner-set"
    folder.mkdir()
    for split, num_rows in (("train", 3), ("test", 2)):
        rows = [{"question": f"{split} {i}", "turns": None} for i in range(num_rows)]
        _write(folder, "\n".join(map(json.dumps, rows)), f"{split}.jsonl")
    return folder


def test_a_split_of_a_data_set(dataset_folder):
    records = dataset_records(str(dataset_folder), None, "test")
    assert [record.fields["question"] for record in records] == ["test 0", "test 1"]
    assert records[1].where == f"{dataset_folder}[test] row 1"
    assert prompt_of(records[1], column="question").id == "owner-set-1"


def test_the_only_split_needs_no_name(dataset_folder):
    (dataset_folder / "test.jsonl").unlink()
    records = dataset_records(str(dataset_folder), None, None)
    assert [record.where[-13:] for record in islice(records, 1)] == ["[train] row 0"]
    assert len(records) == 3


@pytest.mark.parametrize(
    ("config", "split", "message"),
    [
        (None, None, r"has several splits: choose split from train, test"),
        (None, "validation", r"cannot load the data set .*split validation.*validation"),
        ("other", "test", r"cannot load the data set .*config other.*other"),
    ],
)
def test_what_a_data_set_lacks_is_said_in_one_line(dataset_folder, config, split, message):
    with pytest.raises(ValueError, match=message) as error:
        dataset_records(str(dataset_folder), config, split)
    assert "\n" not in str(error.value)


def test_a_data_set_out_of_reach_is_said_in_one_line(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"^cannot load the data set 'owner/name' .*: check these") as error:
        dataset_records("owner/name", None, "test")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "num_records"),
    [
        *[("aime25", 30), ("arena-hard-v2", 750), ("gsm8k", 1319), ("humaneval", 164)],
        *[("livecodebench", 1055), ("math500", 500), ("mbpp", 257), ("mt-bench", 80)],
    ],
)
def test_benchmark_files_are_read_completely(name, num_records):
    path = EVAL_DATASETS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the benchmark prompts are not beside the repository")
    records = jsonl_records(path)
    assert len(records) == num_records
    prompts = [prompt_of(record) for record in records]
    assert [prompt.messages[0].content for prompt in prompts] == [
        record.fields["turns"][0] for record in records
    ]
    assert {prompt.domain for prompt in prompts} == {name}
