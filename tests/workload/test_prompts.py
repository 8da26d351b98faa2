"""Which prompts a specification chooses, what they encode to, and what is refused."""

import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dspark.workload.prompts import Message, Prompt, PromptSpec, check_prompts, encode_prompts, load_prompts

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def _tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges: one token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(["<s>", *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>")
    tokenizer.chat_template = template
    return tokenizer


def _file(folder: Path, records: list[dict]) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


@pytest.fixture
def ten(tmp_path) -> str:
    """A file of ten prompts, each longer than the one before."""
    return _file(tmp_path, [{"prompt": "x" * (i + 1)} for i in range(10)])


def _ids(**spec: object) -> list[str]:
    return [prompt.id for prompt in load_prompts(PromptSpec(**spec))]


class TestChoice:
    def test_the_default_is_every_built_in_prompt(self):
        prompts = load_prompts(PromptSpec())
        assert check_prompts(PromptSpec()) == len(prompts) >= 60
        assert {prompt.domain for prompt in prompts[:3]} == {"math", "code", "chat"}

    def test_domains(self):
        prompts = load_prompts(PromptSpec(domains=("code",), num_requests=5))
        assert [prompt.domain for prompt in prompts] == ["code"] * 5

    def test_first_n_are_a_prefix(self, ten):
        assert _ids(path=ten, num_requests=4) == _ids(path=ten)[:4] == [f"prompts-{i}" for i in (1, 2, 3, 4)]

    def test_the_first_are_skipped_before_any_is_counted(self, ten):
        assert _ids(path=ten, skip=3, num_requests=2) == ["prompts-4", "prompts-5"]
        shuffled = _ids(path=ten, order="shuffle", seed=1)
        kept = _ids(path=ten, order="shuffle", seed=1, skip=8)
        assert kept == [id_ for id_ in shuffled if id_ in ("prompts-9", "prompts-10")]

    def test_a_shuffle_is_a_permutation_that_depends_on_the_seed_only(self, ten):
        shuffled = _ids(path=ten, order="shuffle", seed=1)
        assert shuffled != _ids(path=ten)
        assert sorted(shuffled) == sorted(_ids(path=ten))
        assert shuffled == _ids(path=ten, order="shuffle", seed=1)
        assert shuffled != _ids(path=ten, order="shuffle", seed=2)
        assert shuffled[:3] == _ids(path=ten, order="shuffle", seed=1, num_requests=3)

    def test_a_shuffle_is_the_same_on_every_machine(self, ten):
        # a hash is no library's business; a change of this rule changes what published runs ran
        by_hash = sorted(_ids(path=ten), key=lambda id_: hashlib.sha256(f"7/{id_}".encode()).digest())
        assert _ids(path=ten, order="shuffle", seed=7) == by_hash

    def test_long_prompts_are_left_out_before_any_is_counted(self, ten):
        kept = _ids(path=ten, max_prompt_chars=4, order="shuffle")
        assert sorted(kept) == [f"prompts-{i}" for i in (1, 2, 3, 4)]
        assert kept == [id_ for id_ in _ids(path=ten, order="shuffle") if id_ in kept]

    def test_later_turns_are_said_to_be_left_out(self, tmp_path, caplog):
        path = _file(tmp_path, [{"turns": ["a", "b"]}, {"turns": ["c"]}])
        with caplog.at_level(logging.WARNING):
            load_prompts(PromptSpec(path=path))
        assert [record.getMessage() for record in caplog.records] == [
            f"1 of 2 records of {path} have later turns: only first turns run"
        ]

    def test_a_data_set_folder(self, tmp_path, monkeypatch):
        import datasets

        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        folder = tmp_path / "set"
        folder.mkdir()
        _file(folder, [{"question": "a"}, {"question": "b"}])
        spec = PromptSpec(path=str(folder), split="train", column="question", num_requests=1)
        assert check_prompts(spec) is None
        assert [prompt.messages for prompt in load_prompts(spec)] == [(Message(role="user", content="a"),)]


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"num_requests": 0}, r"^num_requests must be >= 1, .* got 0$"),
            ({"num_requests": -3}, r"^num_requests must be >= 1, .* got -3$"),
            ({"max_prompt_chars": 0}, r"^max_prompt_chars must be >= 1"),
            ({"skip": -1}, r"^skip must be >= 0, got -1"),
            ({"path": ""}, r"^path must name a file or a data set, or be null"),
            ({"order": "random"}, r"^order must be one of first, shuffle, got 'random'$"),
            ({"domains": ("maths",)}, r"^domains must be from math, code, chat, got 'maths'$"),
            ({"domains": ()}, r"^domains must name each domain once, got \[\]$"),
            ({"domains": ("math", "math")}, r"^domains must name each domain once"),
        ],
    )
    def test_fields_out_of_range(self, fields, message):
        with pytest.raises(ValueError, match=message):
            PromptSpec(**fields)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"column": "a"}, "column='a' has no effect on the built-in prompts"),
            ({"path": "FILE", "domains": ("math",)}, "domains=.* has no effect on a JSONL file"),
            ({"path": "FILE", "split": "test"}, "split='test' has no effect on a JSONL file"),
            ({"path": "owner/name", "domains": ("math",)}, "domains=.* has no effect on a data set"),
        ],
    )
    def test_fields_without_effect(self, ten, fields, message):
        if fields.get("path") == "FILE":
            fields = fields | {"path": ten}
        with pytest.raises(ValueError, match=message):
            check_prompts(PromptSpec(**fields))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"num_requests": 11},
                r"^11 prompts are wanted, but .*prompts.jsonl holds 10: lower num_requests or skip",
            ),
            ({"num_requests": 5, "max_prompt_chars": 4}, r"^5 prompts .* holds 4 of at most 4 characters: "),
            ({"skip": 10, "num_requests": None}, r"^1 prompts are wanted, .* holds 0 behind the first 10: "),
        ],
    )
    def test_fewer_prompts_than_wanted(self, ten, fields, message):
        for read in (check_prompts, load_prompts):
            with pytest.raises(ValueError, match=message):
                read(PromptSpec(path=ten, **fields))

    def test_no_prompt_left(self, tmp_path):
        path = _file(tmp_path, [{"prompt": "long"}])
        with pytest.raises(
            ValueError, match=r"^1 prompts are wanted, but .* holds 0 of at most 2 characters"
        ):
            check_prompts(PromptSpec(path=path, max_prompt_chars=2))

    def test_two_records_of_one_id(self, tmp_path):
        path = _file(tmp_path, [{"prompt": "a", "id": 1}, {"prompt": "b", "id": "1"}])
        with pytest.raises(ValueError, match=r"prompts.jsonl:2: the id '1' was used by an earlier record"):
            check_prompts(PromptSpec(path=path))

    def test_an_empty_prompt(self, tmp_path):
        path = _file(tmp_path, [{"prompt": "a"}, {"prompt": ""}])
        with pytest.raises(ValueError, match=r"prompts.jsonl:2: the prompt in 'prompt' is empty"):
            check_prompts(PromptSpec(path=path))

    def test_the_check_imports_nothing_heavy(self):
        code = (
            "import sys; from dspark.workload.prompts import PromptSpec, check_prompts;"
            "check_prompts(PromptSpec());"
            "print(*{'torch', 'transformers', 'datasets', 'numpy', 'jinja2'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == []


class TestEncoding:
    PROMPT = Prompt(
        id="p-1",
        domain="d",
        messages=(Message(role="system", content="S"), Message(role="user", content="Hé")),
    )

    def test_the_chat_template_opens_the_assistants_turn(self):
        tokenizer = _tokenizer(TEMPLATE)
        (ids,) = encode_prompts([self.PROMPT], tokenizer)
        assert tokenizer.decode(ids) == "<s><system>S<user>Hé<assistant>"
        assert ids == tuple(
            tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.content} for m in self.PROMPT.messages],
                add_generation_prompt=True,
                return_dict=True,
            )["input_ids"]
        )

    @pytest.mark.parametrize(("template", "chat_template"), [(None, True), (None, False), (TEMPLATE, False)])
    def test_plain_text(self, template, chat_template):
        tokenizer = _tokenizer(template)
        (ids,) = encode_prompts([self.PROMPT], tokenizer, chat_template=chat_template)
        assert tokenizer.decode(ids) == "S\n\nHé"

    def test_a_missing_template_is_said(self, caplog):
        with caplog.at_level(logging.INFO):
            encode_prompts([self.PROMPT], _tokenizer(None))
        assert [record.getMessage() for record in caplog.records] == [
            "the tokenizer has no chat template: prompts are plain text"
        ]

    def test_the_context_is_a_limit_and_the_longer_prompt_is_named(self):
        short = Prompt(id="short", domain="d", messages=(Message(role="user", content="x" * 10),))
        long = Prompt(id="long", domain="d", messages=(Message(role="user", content="x" * 11),))
        # 11 tokens of 11 leave no room for an answer, 10 do
        tokenizer = _tokenizer(None)
        assert [len(ids) for ids in encode_prompts([short], tokenizer, max_context=11)] == [10]
        with pytest.raises(
            ValueError,
            match=r"^prompt 'long' has 11 tokens and leaves no room in the target's context of 11: ",
        ):
            encode_prompts([short, long], tokenizer, max_context=11)

    def test_a_prompt_that_the_template_refuses_is_named(self):
        messages = (Message(role="tool", content="x"), Message(role="user", content="y"))
        with pytest.raises(ValueError, match=r"^the chat template refuses prompt 'p-2': no tools here$"):
            encode_prompts([Prompt(id="p-2", domain="d", messages=messages)], _tokenizer(TEMPLATE))

    def test_a_prompt_without_tokens_is_named(self):
        blank = Prompt(id="p-3", domain="d", messages=(Message(role="user", content=""),))
        with pytest.raises(ValueError, match=r"^prompt 'p-3' encodes to no token"):
            encode_prompts([blank], _tokenizer(None))

    def test_a_target_without_a_tokenizer_is_refused(self):
        with pytest.raises(ValueError, match=r"^the target has no tokenizer"):
            encode_prompts([self.PROMPT], None)
