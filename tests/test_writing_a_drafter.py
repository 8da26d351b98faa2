"""The drafter that docs/writing_a_drafter.md teaches to write is a drafter."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from torch import Tensor

from dspark.config.typed import parameters_of
from dspark.engine.engine import Engine
from dspark.policies import Confidence, Fixed
from dspark.types import NO_TOKEN, SamplingParams, Signal
from dspark.verification import Coupled
from tests.documents import REPO, blocks, command_lines, placed_example, run_shortened
from tests.drafters.test_draft_model import always, batch_of
from tests.engine.tools import Jagged, load, outputs, random_prompts, rows_of

DOCUMENT = REPO / "docs" / "writing_a_drafter.md"
V, ESCAPE = 5, 0.5
COMMANDS = [line for block in blocks(DOCUMENT, "bash") for line in command_lines(block)]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    files = ("my_drafters/followers.py", "my_configs/drafter/followers.yaml")
    return placed_example(DOCUMENT, *files, tmp_path, monkeypatch)


@pytest.mark.parametrize("command", COMMANDS)
def test_it_runs_by_its_yaml(example: ModuleType, command: str, tmp_path: Path) -> None:
    assert run_shortened(command) == 0
    (path,) = tmp_path.rglob("summary.json")
    assert {row["drafter"] for row in json.loads(path.read_text())["rows"]} == {"followers"}


def test_the_yaml_lists_every_setting(example: ModuleType) -> None:
    settings = yaml.safe_load(blocks(DOCUMENT, "yaml")[0])
    assert settings.pop("_target_") == "my_drafters.followers.Followers"
    assert settings.keys() | {"vocab_size"} == parameters_of(example.Followers).keys()


def _law(text: Sequence[int], last: int) -> Tensor:
    """What follows ``last`` in ``text``, counted anew: float [V]."""
    followers = Counter(b for a, b in itertools.pairwise(text) if a == last)
    weights = torch.tensor([followers[token] + ESCAPE / V for token in range(V)])
    return weights / weights.sum()


def test_drafts_follow_the_committed_text_after_rejections_pauses_and_a_new_row(example: ModuleType) -> None:
    drafter = example.Followers(vocab_size=V, escape=ESCAPE)
    drafter.open(2, 3, 100)
    needs = frozenset({Signal.TOKEN_PROBABILITY})
    texts = [
        [[1, 2, 1, 2, 3], [0, 0]],  # both draft
        [[1, 2, 1, 2, 3, 4], [0, 0, 4]],  # nothing accepted; the second pauses
        [[1, 2, 1, 2, 3, 4, 1, 3], [0, 0, 4, 0, 4, 2]],
    ]
    for rows, plan in zip(texts, ([3, 2], [2, 0], [1, 3]), strict=True):
        draft = drafter.propose(batch_of(rows, needs, temperature=1.0), torch.tensor(plan), always)
        assert draft.q is not None
        assert draft.lengths.tolist() == plan
        for i, text in enumerate(rows):
            last = text[-1]
            for k, token in enumerate(draft.tokens[i, : plan[i]].tolist()):
                law = _law(text, last)
                torch.testing.assert_close(draft.q[i, k].float(), law)
                assert draft.signals[Signal.TOKEN_PROBABILITY][i, k] == pytest.approx(float(law[token]))
                last = token
            assert (draft.tokens[i, plan[i] :] == NO_TOKEN).all()
    drafter.release(0)
    fresh = drafter.propose(batch_of([[3, 3]], temperature=1.0), torch.tensor([1]), always)
    torch.testing.assert_close(fresh.q[0, 0].float(), _law([3, 3], 3))


def test_a_row_that_is_stopped_keeps_the_token_that_stopped_it(example: ModuleType) -> None:
    drafter = example.Followers(vocab_size=V)
    drafter.open(2, 3, 100)

    def stop_first_row(k: int, signals: object) -> Tensor:
        return torch.tensor([k < 2, True])

    draft = drafter.propose(batch_of([[1, 2, 1], [0, 0]]), torch.tensor([3, 3]), stop_first_row)
    assert draft.lengths.tolist() == [2, 3]
    assert draft.tokens[0].tolist() == [2, 1, NO_TOKEN]  # greedy: what followed 1, then what followed 2


@pytest.mark.parametrize("policy", [Jagged(depth=4), Confidence(depth=4, threshold=0.3)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(
    example: ModuleType, tiny_llama: Path, policy: Jagged | Confidence, temperature: float
) -> None:
    target = load(tiny_llama)
    params = SamplingParams(max_new_tokens=24, temperature=temperature, ignore_eos=True)
    rule = Coupled()  # sampled text is a function of the seed alone
    prompts = random_prompts(5, vocab=8)
    plain, _ = outputs(
        Engine(target, None, Fixed(depth=0), max_batch_size=3, verification=rule), prompts, params
    )
    drafter = example.Followers(vocab_size=target.vocab_size)
    text, records = outputs(
        Engine(target, drafter, policy, max_batch_size=3, verification=rule), prompts, params
    )
    assert text == plain
    assert sum(row.drafted for row in rows_of(records)) > 20


def test_it_refuses_an_escape_of_nothing(example: ModuleType) -> None:
    with pytest.raises(ValueError, match="escape must be > 0, because every token needs a chance, got 0"):
        example.Followers(vocab_size=V, escape=0)
